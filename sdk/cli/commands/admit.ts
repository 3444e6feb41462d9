import { InvalidArgumentError, type Command } from 'commander';
import { fromUtf8, utf8 } from '../../../protocol/bytes.js';
import { parseStrict, type JsonValue } from '../../../protocol/json.js';
import {
  admitBatchHttp,
  agentEnvelope,
  executeRequest,
  SdkError,
  type BatchItem,
} from '../../index.js';
import { openBatchOutput, openProgressBar, showsBar } from '../batch-output.js';
import { type AddCommand, type Invocation, UsageError } from '../config.js';
import type { ExitCode } from '../exit-code.js';
import { inputName, readInput } from '../files.js';

interface AdmitOptions {
  batchItems?: number;
  quiet?: true;
}

export function addAdmit(add: AddCommand): Command {
  return add(
    {
      name: 'admit',
      summary: 'Admit a file of executions and agent envelopes',
      description:
        'FILE has one item per line; - reads standard input. An item is an execute request, which may omit schema_version and tenant_id, or an agent envelope with its nonce. The command checks all lines before it sends the first batch. The same file again returns the first receipts, so run an interrupted command again. Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key.\n\n' +
        'Exits 0 when every item was admitted, 1 when an item was rejected or invalid, 4 when the policy denied an item and no item was rejected, and 3 when the command could not finish.',
      examples: [
        'svc admit actions.ndjson',
        'svc admit actions.ndjson --json | jq -r .proof_id',
        `echo '{"intent_id":"i-1","action":"SEND_REPORT"}' | svc admit -`,
      ],
    },
    admit,
  )
    .argument('<FILE>')
    .option('--batch-items <N>', 'limit the items of one batch (default: 10000)', batchItems)
    .option('-q, --quiet', 'show no progress bar');
}

async function admit(invocation: Invocation<AdmitOptions>): Promise<ExitCode> {
  const { argument: file, options, json, terminal } = invocation;
  const engine = invocation.engine();
  const items = await readItems(file, engine.tenantId);
  const isShown = showsBar(terminal, { quiet: options.quiet === true, json });
  const bar = await openProgressBar(items.length, isShown);
  const output = openBatchOutput(invocation, ({ batch_id: _batch, ...result }) => result);
  try {
    const settings = {
      ...(options.batchItems !== undefined && { maxItems: options.batchItems }),
      onProgress: bar.update,
    };
    for await (const result of admitBatchHttp(engine, items, settings)) {
      output.add(result, bar.interrupt);
    }
  } finally {
    bar.stop();
  }
  return output.finish();
}

function batchItems(text: string): number {
  if (!/^[1-9][0-9]{0,4}$/.test(text) || Number(text) > 10_000) {
    throw new InvalidArgumentError('Expected a number from 1 to 10000.');
  }
  return Number(text);
}

/** The completed and validated items of a file. An error names the line. */
async function readItems(file: string, tenantId: string): Promise<BatchItem[]> {
  const name = inputName(file);
  const bytes = await readInput(file);
  let lines: string[];
  try {
    lines = fromUtf8(bytes).split('\n');
  } catch (cause) {
    throw new UsageError(`${name} is not UTF-8`, { cause });
  }
  const items = lines.flatMap((line, at) => {
    if (line.trim() === '') return [];
    try {
      return [itemOf(parseStrict(utf8(line)), tenantId)];
    } catch (cause) {
      const message = `${name}:${String(at + 1)}: ${(cause as Error).message}`;
      throw new UsageError(message, { cause });
    }
  });
  if (items.length === 0) {
    throw new UsageError(`${name} has no items: write one per line, as in svc admit --help`);
  }
  return items;
}

function itemOf(value: JsonValue, tenantId: string): BatchItem {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new SdkError('invalid_input', 'is not a JSON object');
  }
  if (!('kind' in value)) return executeRequest(tenantId, value as never);
  // A generated value would make every run of the same file another admission.
  for (const member of ['nonce', 'requested_at']) {
    if (!(member in value)) {
      throw new SdkError('invalid_input', `/${member}: is required in a file`);
    }
  }
  return agentEnvelope(tenantId, value as never);
}
