import { admitBatchHttp, type BatchItemResult } from '../../index.js';
import { text, type Command } from '../command.js';
import { EXIT, type ExitCode } from '../exit-code.js';
import { readItems } from '../items.js';
import { openProgress, showsBar } from '../progress.js';
import { countsOf, itemsExit, sayItem, sayCounts } from '../results.js';
import { UsageError } from '../usage-error.js';

export const admit: Command = {
  name: 'admit',
  summary: 'Admit a file of executions and agent envelopes',
  usage: 'FILE',
  takes: { least: 1, most: 1 },
  description:
    'FILE has one item a line, - is standard input: an execute request, whose schema_version and\n' +
    'tenant_id may be left out, or an agent envelope with its nonce. It is sent in batches; the same\n' +
    'file again gets the first receipts, so what broke off is simply run again. All lines are read\n' +
    'and checked before the first is sent. Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key.\n\n' +
    'Exits 0 when everything was admitted, 1 when an item was refused or is at fault, 4 when the\n' +
    'policy denied one and there is no worse, and 3 when it could not be finished.',
  options: {
    'batch-items': { type: 'string', value: 'N', help: 'items of one batch at most; 10000' },
    quiet: { type: 'boolean', short: 'q', help: 'no progress' },
  },
  examples: [
    'svc admit actions.ndjson',
    'svc admit actions.ndjson --json | jq -r .proof_id',
    `echo '{"intent_id":"i-1","action":"SEND_REPORT"}' | svc admit -`,
  ],
  run: async ({ args: [name = ''], values, json, engine, terminal }) => {
    const options = engine();
    const items = await readItems(name, options.tenantId);
    const progress = await openProgress(
      items.length,
      showsBar(terminal, { quiet: values['quiet'] === true, json }),
    );
    const counts = countsOf();
    let worst: ExitCode = EXIT.yes;
    try {
      const settings = {
        ...maxItems(text(values, 'batch-items')),
        onProgress: progress.tell,
      };
      const results = admitBatchHttp(options, items, settings);
      for await (const result of results) {
        counts.add(result);
        worst = itemsExit(worst, result);
        if (json) terminal.printJson(withoutBatch(result));
        else if (result.state !== 'admitted') progress.aside(() => sayItem(terminal, result));
      }
    } finally {
      progress.end();
    }
    if (!json) sayCounts(terminal, counts.all, worst);
    return worst;
  },
};

function maxItems(given: string | undefined): { maxItems?: number } {
  if (given === undefined) return {};
  if (!/^[1-9][0-9]{0,4}$/.test(given) || Number(given) > 10_000) {
    throw new UsageError('--batch-items takes a number from 1 to 10000');
  }
  return { maxItems: Number(given) };
}

/** A line of output is about an item; which batch it travelled in is of no use to anybody. */
function withoutBatch({ batch_id: _batch, ...result }: BatchItemResult): object {
  return result;
}
