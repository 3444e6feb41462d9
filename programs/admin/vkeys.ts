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
    help: 'print the C2SP verifier key that readers pin for a log or snapshot key; needs no database',
    example: 'vkey log.example.org/2026 /etc/svc/log-2.pem',
    run: async (_admin, given) => {
      const name = given.argument(0);
      if (!/^[^\s+]{1,200}$/.test(name)) {
        throw new UsageError('a key name must not contain spaces or plus signs');
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
    throw new OperatorError(`${file} does not hold a PEM key`, { cause });
  }
  if (jwk.crv !== 'Ed25519' || jwk.x === undefined) {
    throw new OperatorError(
      `${file} does not hold an Ed25519 key: create one with openssl genpkey -algorithm ed25519`,
    );
  }
  return Buffer.from(jwk.x, 'base64url');
}
