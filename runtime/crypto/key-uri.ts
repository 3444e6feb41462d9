import { equalBytes } from '#protocol/bytes';
import { OperatorError } from '../process/operator-error.js';

/** A key that signs about once per second: of the log, of a verifier or of a witness. */
export interface Signer {
  /** 32 bytes. */
  publicKey: Uint8Array;
  /** Ed25519 signature (RFC 8032) of the message, 64 bytes. */
  sign: (message: Uint8Array) => Uint8Array | Promise<Uint8Array>;
}

/** Whether a setting names a key in an HSM or a KMS, and not a file. */
export const isKeyUri = (where: string): boolean => /^(pkcs11|awskms):/.test(where);

/** DER header of an Ed25519 SubjectPublicKeyInfo (RFC 8410); the 32 key bytes follow. */
export const SPKI_HEADER = Buffer.from('302a300506032b6570032100', 'hex');

export function publicKeyInSpki(where: string, spki: Uint8Array): Uint8Array {
  const isEd25519 =
    spki.length === SPKI_HEADER.length + 32 &&
    equalBytes(spki.subarray(0, SPKI_HEADER.length), SPKI_HEADER);
  if (isEd25519) return new Uint8Array(spki.subarray(SPKI_HEADER.length));
  throw new OperatorError(`The key ${where} is not an Ed25519 key.`);
}
