import { InvalidArgumentError, Option } from 'commander';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { utf8 } from '../../../protocol/bytes.js';
import { isBatchId, isProofId } from '../../../protocol/ids.js';
import { isObject, parseStrict, type JsonValue } from '../../../protocol/json.js';
import { mapInOrder } from '../../engine/batch.js';
import * as sdk from '../../index.js';
import { type CommandSpec, type Invocation, UsageError } from '../config.js';
import { type ExitCode, EXIT, row, styled, type Terminal } from '../terminal.js';
import { errno, inputName, readText, writeOutput } from '../files.js';
import { evidencePinOptions, evidencePins, type PinOptions } from '../pins.js';
import { printLookup } from './lookup.js';

interface AdmitOptions {
  batchItems?: number;
  evidence?: string;
  quiet?: true;
}

export const admitCommand: CommandSpec = {
  name: 'admit',
  summary: 'Admit a file of executions and agent envelopes',
  description:
    'FILE has one item per line; - reads standard input. An item is an execute request, which may omit schema_version and tenant_id, or an agent envelope with its requested_at and its nonce, or with a dedupe_key of your own in place of the nonce. The command checks all lines before it sends the first batch. Admitting the same file again returns the first receipts, so repeat an interrupted command. Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key.\n\n' +
    'With --evidence, the directory gets the evidence of each receipt: the signed proof, for `svc verify --offline` and `svc monitor --watch`. The command reports evidence that it could not fetch or store, and admits the other items. Run it again to fetch the missing evidence, or, once a checkpoint covers the proofs, to fetch all evidence again, with inclusion proofs.\n\n' +
    'With --json, standard output has one result per line, and the last line of standard error the counts and the rate.\n\n' +
    'Exits 0 when every item was admitted, 1 when an item was rejected or invalid, 4 when no item was rejected but the policy denied an item or requires an approval, and 3 when the command could not finish, or could not store the evidence of an admission.',
  examples: [
    'svc admit actions.ndjson',
    'svc admit actions.ndjson --json | jq -r .proof_id',
    `echo '{"intent_id":"i-1","action":"SEND_REPORT"}' | svc admit -`,
  ],
  argument: '<FILE>',
  options: [
    new Option('--batch-items <N>', 'limit the items of one batch (default: 10000)').argParser(
      batchItems,
    ),
    ['--evidence <DIR>', 'store the evidence of each receipt in this directory'],
    ['-q, --quiet', 'show no progress bar'],
  ],
  timeout: 'limit each request, and the time without progress (default: 60)',
  run: admit,
};

async function admit(invocation: Invocation<AdmitOptions>): Promise<ExitCode> {
  const { argument: file, options, json, terminal } = invocation;
  const engine = invocation.engine();
  const items = await readItems(file, engine.tenantId);
  // Shows no progress bar in a file or a pipe, and none on a screen with JSON, which the bar would garble.
  const isTorn = json && terminal.outIsTerminal;
  const isShown = terminal.errorIsTerminal && options.quiet !== true && !isTorn;
  const bar = await openProgressBar(items.length, isShown);
  const { keep, missing } = await openEvidenceKeeper(options.evidence, engine, (problem) =>
    bar.interrupt(() => terminal.printError(problem)),
  );
  const output = openBatchOutput(invocation);
  const startedAt = performance.now();
  try {
    const settings = { maxItems: options.batchItems, onProgress: bar.update };
    const results = sdk.admitBatchHttp(engine, items, settings);
    for await (const result of mapInOrder(results, keep, EVIDENCE_IN_FLIGHT)) {
      output.add(result, bar.interrupt);
    }
  } finally {
    bar.stop();
  }
  const exitCode = output.finish(
    Math.round((items.length * 1000) / (performance.now() - startedAt)),
  );
  return exitCode === EXIT.success && missing.size > 0 ? EXIT.undecided : exitCode;
}

const EVIDENCE_IN_FLIGHT = 8;

/** Stores the evidence of receipts in a directory. A failure is reported, and changes no receipt. */
async function openEvidenceKeeper(
  directory: string | undefined,
  engine: sdk.EngineOptions,
  report: (problem: string) => void,
) {
  const missing = new Set<string>();
  if (directory === undefined) return { missing, keep: (result: sdk.BatchItemResult) => result };
  await mkdir(directory, { recursive: true }).catch((cause: unknown) => {
    throw new UsageError(`${directory} cannot be created: ${errno(cause)}`, { cause });
  });
  // Repeated items share one proof, so only the first of them writes its file.
  const kept = new Map<string, Promise<void>>();
  async function store(receipt: sdk.Receipt): Promise<void> {
    const { registry_proof_id: proofId } = receipt;
    try {
      const { evidence } = await sdk.readReceiptEvidenceHttp(engine, receipt);
      const text = sdk.canonicalJson(evidence);
      await writeOutput(join(directory!, `${proofId}.json`), utf8(text));
    } catch (error) {
      missing.add(proofId);
      report(`no evidence of ${proofId}: ${(error as Error).message}`);
    }
  }
  const keep = async (result: sdk.BatchItemResult): Promise<sdk.BatchItemResult> => {
    const decided =
      'denial' in result ? result.denial : 'approval' in result ? result.approval : result;
    if ('receipt' in decided) {
      const { receipt } = decided;
      const { registry_proof_id: proofId } = receipt;
      if (!kept.has(proofId)) kept.set(proofId, store(receipt));
      await kept.get(proofId);
    }
    return result;
  };
  return { missing, keep };
}

function batchItems(text: string): number {
  if (!/^[1-9][0-9]{0,4}$/.test(text) || Number(text) > 10_000) {
    throw new InvalidArgumentError('Expected a number from 1 to 10000.');
  }
  return Number(text);
}

/** The completed and validated items of a file. An error names the line. */
async function readItems(file: string, tenantId: string): Promise<sdk.BatchItem[]> {
  const name = inputName(file);
  const lines = (await readText(file)).split('\n');
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

function itemOf(value: JsonValue, tenantId: string): sdk.BatchItem {
  if (!isObject(value)) {
    throw new sdk.SdkError('invalid_input', 'is not a JSON object');
  }
  if (!('kind' in value)) return sdk.executeRequest(tenantId, value as never);
  // Requires these members in the file: with generated values, each run of the command would create new admissions.
  const needs = (member: string, names: string) =>
    new sdk.SdkError('invalid_input', `/${member}: an envelope in a file needs ${names}`);
  if (!('nonce' in value) && !('dedupe_key' in value)) throw needs('nonce', 'nonce or dedupe_key');
  if (!('requested_at' in value)) throw needs('requested_at', 'requested_at');
  const { dedupe_key: dedupeKey, ...envelope } = value;
  return sdk.agentEnvelope(tenantId, {
    ...envelope,
    ...(dedupeKey !== undefined && { dedupeKey }),
  } as never);
}

export const followCommand: CommandSpec<PinOptions> = {
  name: 'follow',
  summary: 'Wait for the public verdict on a proof, or for all results of a batch',
  description:
    'A proof needs SVC_PUBLIC_URL; a batch needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. Exits like `svc lookup` and `svc admit`, and 3 after --timeout. With a pinned log, the command verifies the verdict like `svc lookup`.',
  examples: ['svc follow 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --timeout 30'],
  argument: '<PROOF_ID|BATCH_ID>',
  options: [...evidencePinOptions],
  timeout: 'limit the whole call, for a batch the time without progress (default: 60)',
  run: follow,
};

async function follow(invocation: Invocation<PinOptions>): Promise<ExitCode> {
  const { argument: id, options } = invocation;
  const trust = await evidencePins(options);
  if (isProofId(id)) {
    const found = await sdk.waitForVerdictHttp(
      { ...invocation.registry(), ...trust },
      { proof_id: id },
    );
    return printLookup(invocation, id, found);
  }
  if (trust.pins !== undefined) throw new UsageError('pins apply only to the verdict on a proof');
  if (!isBatchId(id)) throw new UsageError(`${id} is neither a proof id nor a batch id`);
  const output = openBatchOutput(invocation);
  const results = await sdk.followBatchHttp(invocation.engine(), { batch_id: id });
  for (const result of results) output.add(result);
  return output.finish();
}

const CODES: Record<sdk.BatchItemResult['state'], ExitCode> = {
  admitted: EXIT.success,
  denied: EXIT.denied,
  approval_required: EXIT.denied,
  refused: EXIT.negative,
  invalid: EXIT.negative,
  erased: EXIT.negative,
};

/** Prints the results of a batch: with `json` all of them, else only those that were not admitted. */
function openBatchOutput({ terminal, json }: { terminal: Terminal; json: boolean }) {
  const counts: Record<string, number> = Object.fromEntries(
    Object.keys(CODES).map((state) => [state, 0]),
  );
  let replayed = 0;
  const batches = new Set<string>();
  let exitCode: ExitCode = EXIT.success;
  return {
    /** Counts a result, and prints it; `print` can hide a progress bar while a line is printed. */
    add: (result: sdk.BatchItemResult, print = (line: () => void) => line()) => {
      counts[result.state]! += 1;
      batches.add(result.batch_id);
      if (result.replayed) replayed += 1;
      const code = CODES[result.state];
      // The exit code of a rejected item takes precedence over that of a denied item, which has a decision.
      if (code !== EXIT.success && exitCode !== EXIT.negative) exitCode = code;
      if (json) terminal.printJson(result);
      else if (result.state !== 'admitted') print(() => printItem(terminal, result));
    },
    /** Prints the counts and the rate, with `json` as JSON to standard error; returns the exit code of the batch. */
    finish: (itemsPerSecond?: number) => {
      if (json) {
        const rate = itemsPerSecond === undefined ? {} : { items_per_second: itemsPerSecond };
        terminal.printErrorJson({ ...counts, replayed, batches: [...batches], ...rate });
        return exitCode;
      }
      const shown = Object.entries(counts).filter(([state, n]) => n > 0 || state === 'admitted');
      const total = shown.map(([state, n]) => `${String(n)} ${state}`).join(', ');
      const earlier = replayed > 0 ? ` (${String(replayed)} by an earlier admission)` : '';
      terminal.print(styled(exitCode, total + earlier));
      const [first = '', ...more] = batches;
      const others = more.length > 0 ? `, and ${String(more.length)} more` : '';
      terminal.print(...row('batch', first + others));
      if (itemsPerSecond !== undefined) {
        terminal.print(...row('rate', `${String(itemsPerSecond)} items per second`));
      }
      return exitCode;
    },
  };
}

function printItem(terminal: Terminal, result: sdk.BatchItemResult): void {
  const proof = result.proof_id === undefined ? '' : `  ${result.proof_id}`;
  terminal.print(
    // Numbers the items from 1.
    `item ${String(result.index + 1)} `,
    styled(CODES[result.state], result.state),
    `${proof}  ${reason(result)}`,
  );
}

function reason(result: sdk.BatchItemResult): string {
  if (result.state === 'admitted') return '';
  if (result.state === 'approval_required') {
    return `until ${result.approval.expires_at}: ${explanation(result.approval)}`;
  }
  if (result.state !== 'denied') return `${result.problem.code}: ${result.problem.detail}`;
  return explanation(result.denial);
}

const explanation = ({ sentences, reasons }: Pick<sdk.Denial, 'reasons' | 'sentences'>): string =>
  Object.values(sentences).join(' ') || reasons.join(', ');

async function openProgressBar(total: number, isShown: boolean) {
  if (!isShown) {
    return {
      update: () => undefined,
      interrupt: (print: () => void) => print(),
      stop: () => undefined,
    };
  }
  const { SingleBar } = await import('cli-progress');
  const bar = new SingleBar({
    format: 'decided {bar} {value} of {total}',
    stream: process.stderr,
    hideCursor: true,
    clearOnComplete: true,
    barsize: 30,
    // Restores the hidden cursor on an interrupt.
    gracefulExit: true,
  });
  bar.start(total, 0);
  return {
    update: ({ accepted, pending }: sdk.BatchProgress) => bar.update(accepted - pending),
    interrupt: (print: () => void) => {
      process.stderr.write('\r\u001b[2K');
      print();
      bar.render();
    },
    stop: () => bar.stop(),
  };
}
