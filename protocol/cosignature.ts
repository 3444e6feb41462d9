import { concat, utf8 } from './bytes.js';
import type { Ed25519Verify } from './ed25519.js';
import { ProtocolError } from './errors.js';
import { type NoteSigner, isBy, signatureLine, splitNote, type Vkey } from './note.js';

/** C2SP tlog-cosignature with Ed25519 keys (`cosignature/v1`). */

const TIMESTAMP_BYTES = 8;
/** Length of a log's signature, which contains no timestamp. */
const ED25519_SIGNATURE_BYTES = 64;

/** The bytes that a witness signs, at `timestamp` in seconds since 1970. */
export function cosignedMessage(text: string, timestamp: number): Uint8Array {
  return utf8(`cosignature/v1\ntime ${timestamp}\n${text}`);
}

/**
 * Cosigns the text of a checkpoint and returns the signature line.
 *
 * @param signer a signer whose `keyHash` is the key id of type {@link COSIGNATURE_TYPE}
 * @param timestamp seconds since 1970, not 0
 */
export function cosign(text: string, signer: NoteSigner, timestamp: number): string {
  if (!Number.isSafeInteger(timestamp) || timestamp <= 0) {
    throw new ProtocolError('out_of_range', `${timestamp} is not a positive number of seconds`);
  }
  const encoded = new Uint8Array(TIMESTAMP_BYTES);
  new DataView(encoded.buffer).setBigUint64(0, BigInt(timestamp));
  return signatureLine(signer, concat(encoded, signer.sign(cosignedMessage(text, timestamp))));
}

/**
 * The latest time that a cosignature of a note states, unverified, in seconds since 1970; 0 without a
 * cosignature. Throws `malformed_note`.
 */
export function latestStatedTime(note: string): number {
  const times = splitNote(note).signatures.map(({ signature }) =>
    signature.length > ED25519_SIGNATURE_BYTES ? timestampOf(signature) : 0,
  );
  return Math.max(...times);
}

const timestampOf = (signature: Uint8Array): number =>
  Number(new DataView(signature.buffer, signature.byteOffset, signature.length).getBigUint64(0));

export interface Cosignature {
  /** Seconds since 1970, as the witness states them. */
  timestamp: number;
  /** The signature line, with its newline. */
  line: string;
}

/**
 * The latest cosignature of a note that verifies under a witness key, or null. Ignores every other
 * signature. Throws `malformed_note`.
 */
export function findCosignature(
  note: string,
  vkey: Vkey,
  verify: Ed25519Verify,
): Cosignature | null {
  const { text, signatures } = splitNote(note);
  let latest: Cosignature | null = null;
  for (const signed of signatures) {
    if (!isBy(signed, vkey) || signed.signature.length <= TIMESTAMP_BYTES) continue;
    const { signature: bytes } = signed;
    const timestamp = timestampOf(bytes);
    // Numbers above 2^53 − 1 are rounded, and 0 means no time.
    if (!Number.isSafeInteger(timestamp) || timestamp <= (latest?.timestamp ?? 0)) continue;
    const signature = bytes.slice(TIMESTAMP_BYTES);
    if (!verify(vkey.publicKey, cosignedMessage(text, timestamp), signature)) continue;
    latest = { timestamp, line: signatureLine(vkey, bytes) };
  }
  return latest;
}
