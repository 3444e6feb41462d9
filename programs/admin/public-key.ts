import { createPublicKey } from 'node:crypto';
import { OperatorError } from '#runtime/operator-error';
import { readOperatorsFile } from './files.js';

/** The raw public key of a PEM file, which may hold the public or the private key. */
export async function readPublicKey(file: string): Promise<Uint8Array> {
  const pem = await readOperatorsFile(file);
  let jwk;
  try {
    jwk = createPublicKey(pem).export({ format: 'jwk' });
  } catch (cause) {
    throw new OperatorError(`${file} holds no key in PEM form`, { cause });
  }
  if (jwk.crv !== 'Ed25519' || jwk.x === undefined) {
    throw new OperatorError(
      `${file} holds no Ed25519 key: make one with openssl genpkey -algorithm ed25519`,
    );
  }
  return Buffer.from(jwk.x, 'base64url');
}
