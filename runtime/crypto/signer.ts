import { OperatorError } from '../process/operator-error.js';
import { isKeyUri, type Signer, loadSigningKey, nativeVerify } from './node.js';

const SELF_TEST = Buffer.from('self-test of a signing key\n');

/**
 * Opens the key in a PEM file, in a PKCS#11 token (`pkcs11:…`, RFC 7512) or in AWS KMS (`awskms:///…`).
 *
 * A key outside of a file signs a test message, so that the start of the program fails if the key cannot sign.
 */
export async function openSigner(where: string): Promise<Signer> {
  if (!isKeyUri(where)) return loadSigningKey(where);
  const open = where.startsWith('pkcs11:')
    ? (await import('./pkcs11.js')).openPkcs11Key
    : (await import('./aws-kms.js')).openKmsKey;
  const signer = verified(where, await open(where));
  await signer.sign(SELF_TEST);
  return signer;
}

/** Verifies each signature before it is published, because a device may fail. */
function verified(where: string, { publicKey, sign }: Signer): Signer {
  return {
    publicKey,
    sign: async (message) => {
      const signature = new Uint8Array(await sign(message));
      if (nativeVerify(publicKey, message, signature)) return signature;
      throw new OperatorError(`The key ${where} returned a signature that does not verify.`);
    },
  };
}
