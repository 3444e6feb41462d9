import { isUnavailable } from '#sql/db/errors';
import { activeAepKeys } from './aep-keys.js';
import type { Command } from './command.js';
import { attentionFor } from './status/attention.js';
import { readFacts } from './status/facts.js';
import { checkPublicApi } from './status/public-api.js';
import { screen } from './status/screen.js';

export const statusCommands: Command[] = [
  {
    name: 'status',
    takes: [],
    help: 'show the state of the whole service; exit code 0 healthy, 1 with problems or unchecked parts, 2 database unreachable',
    example: 'status --json',
    run: async (admin) => {
      try {
        const sql = await admin.database();
        const publicApi = await checkPublicApi(admin.statusConfig());
        const facts = await readFacts(sql, await activeAepKeys(sql), publicApi);
        const attention = attentionFor(facts);
        return {
          document: { status: attention.length === 0 ? 'well' : 'attention', attention, ...facts },
          text: screen(facts, attention),
          failed: attention.length > 0,
        };
      } catch (error) {
        if (!isUnavailable(error)) throw error;
        const what = 'the database cannot be reached';
        const todo = 'is it running, and is DATABASE_URL right?';
        return {
          document: { status: 'unreachable', attention: [{ what, do: todo }] },
          text: `! ${what}\n    ${todo}\n`,
          unreachable: true,
        };
      }
    },
  },
];
