import { endLog } from '#sql/log/checkpoints';
import { pinning } from '../pinning.js';
import { confirmOption, required, requireConfirmed, words, type Command } from './command.js';
import { compareWithPublished } from './lost-leaves.js';

export const logCommands: Command[] = [
  {
    name: 'log lost',
    takes: ['<snapshot directory>'],
    options: {
      vkey: {
        value: 'LOG_VKEY',
        required: true,
        help: "the log's verifier key, or several separated by commas: the only trusted input",
      },
    },
    help: 'list published leaves that the database lacks, after a restore or failover; exit code 1 if any',
    example: 'log lost /srv/public --vkey log.example.org/2026+0a1b2c3d+AR…',
    run: async (admin, given) => {
      const vkeys = required(given, 'vkey').split(',');
      const sql = await admin.database();
      const directory = given.argument(0);
      const found = await pinning('--vkey', () => compareWithPublished(sql, directory, vkeys));
      return { document: found, failed: found.lost.length > 0 };
    },
  },
  {
    name: 'log end',
    takes: ['<LOG_ORIGIN>'],
    options: {
      reason: {
        value: 'words',
        required: true,
        help: 'what was lost, and when; recorded in the audit',
      },
      confirm: confirmOption('LOG_ORIGIN'),
    },
    help: 'retire the log of this database permanently, after a publisher recorded the loss of published leaves; the remaining leaves continue under another LOG_ORIGIN',
    example:
      'log end log.example.org/2026 --reason "17 leaves lost with db1 on 2026-11-22" --confirm log.example.org/2026',
    run: async (admin, given) => {
      const origin = given.argument(0);
      requireConfirmed(given, origin);
      const reason = words(required(given, 'reason'), 'the reason', 512);
      const signed = await admin.act((tx) => endLog(tx, origin, reason));
      return { document: { origin, ended: true, last_checkpoint_known: signed } };
    },
  },
];
