import { formatVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto';
import { UsageError, type Command } from './command.js';
import { readPublicKey } from './public-key.js';

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
