import { createPublicKey } from 'node:crypto';
import { formatVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { type Command, UsageError } from './command.js';
import { readOperatorsFile } from './files.js';

export const vkeyCommands: Command[] = [
  {
    name: 'vkey',
    takes: ['<key name>', '<key.pem>'],
    help: 'the C2SP verifier key that readers pin for a log or snapshot key; needs no database',
    example: 'vkey log.example.org/2026 /etc/svc/log-2.pem',
    run: async (_admin, given) => {
      const name = given.argument(0);
      if (!/^[^\s+]{1,200}$/.test(name)) {
        throw new UsageError('a key name is the LOG_ORIGIN, without spaces and plus signs');
      }
      const vkey = formatVkey(nativeSha256, name, await readPublicKey(given.argument(1)));
      return { document: { vkey }, text: `${vkey}\n` };
    },
  },
];

/** The raw public key of a PEM file with a public or private key. */
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
