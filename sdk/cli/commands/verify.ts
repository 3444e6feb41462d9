import { toBase64 } from '../../../protocol/bytes.js';
import { agentText, subjectRows } from '../../../protocol/approval-request.js';
import { attempt } from '../../../protocol/errors.js';
import { parseEvidence } from '../../../protocol/evidence/verify.js';
import { isProofId } from '../../../protocol/ids.js';
import * as sdk from '../../index.js';
import { parseStrict } from '../../../protocol/json.js';
import { SCHEMA } from '../../../protocol/schemas/ids.js';
import type { Aep } from '../../../protocol/schemas/aep.js';
import { HASH_PATTERN } from '../../../protocol/schemas/primitives.js';
import { type CommandSpec, type Invocation, UsageError } from '../config.js';
import {
  EXIT,
  type ExitCode,
  row,
  type Stated,
  styled,
  type Terminal,
  verdictExit,
} from '../terminal.js';
import { hashOfFile, sendExport, readInput } from '../files.js';
import { evidencePinOptions, evidencePins, readPins, type PinOptions } from '../pins.js';
import { STATED_NOTES, kindOf, printLookup } from './lookup.js';

type VerifyOptions = PinOptions & {
  offline?: true;
  id?: string;
  tlogProof?: string;
  arguments?: string;
};

export const verifyCommand: CommandSpec<VerifyOptions> = {
  name: 'verify',
  summary: 'Verify a proof with the verification system, or offline with pinned keys',
  description:
    'FILE is an output of `svc export`; - reads standard input. With --offline FILE may also be the evidence of a receipt, or the package of a run, which is then checked for completeness. Online, the verification system answers check by check; this needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. --offline sends no request, and trusts only signatures of the pinned keys. The offline result is that the proof is authentic and in the log, never that it is valid: the proof may have been revoked since. A proof that has expired is EXPIRED, and a proof that the file reports as revoked is REVOKED. With --arguments, the proof must be of a call with exactly the arguments in a JSON file; export it with --disclose arguments_hash. An output of `svc evidence` proves the verdict at its time: --offline prints that verdict while the evidence is recent enough, and a revocation at any age.\n\n' +
    'Exits 0 for a proof of an admission, 4 for a proof of a denial and, with --offline, of a report (an outcome, or a closed run), 1 for a proof that is invalid, revoked or expired, and 3 when undecided: no matching key pinned, no log pinned, not verified yet, or unreachable.',
  examples: [
    'svc verify 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc verify proof.json',
    'svc verify proof.json --offline --pins pins.json',
    'svc verify evidence.json --offline --pins pins.json --max-age 600',
    'svc verify - --offline --pins pins.json --json < proof.json',
  ],
  argument: '<PROOF_ID|FILE>',
  options: [
    ['--offline', 'check the file on this machine, without a network'],
    ['--aep-key <KEY>', 'trust this AEP key, in base64url'],
    ['--tlog-proof <FILE>', 'check inclusion with this .tlog-proof, not with the proof in FILE'],
    ['--arguments <FILE>', 'require a disclosed hash of these arguments: a JSON file'],
    ['--id <ID>', 'require evidence about this ID; needed for a share token'],
    ...evidencePinOptions,
  ],
  run: (invocation) =>
    invocation.options.offline === true ? verifyFileOffline(invocation) : online(invocation),
};

async function online(invocation: Invocation<VerifyOptions>): Promise<ExitCode> {
  const { argument, options, json, terminal } = invocation;
  // Options for --offline only: online verification ignores pins, and its result would mislead a user who gave them.
  const OFFLINE = [
    'pins',
    'aepKey',
    'logVkey',
    'logOrigin',
    'policy',
    'tlogProof',
    'id',
    'maxAge',
  ] as const;
  if (OFFLINE.some((name) => options[name] !== undefined)) {
    throw new UsageError('pinned keys, --policy, --tlog-proof, --id and --max-age need --offline');
  }
  const engine = invocation.engine();
  const wanted = await argumentsHash(options);
  const envelope = await (isProofId(argument)
    ? sdk.verifyProofHttp(engine, { proof_id: argument })
    : sendExport(argument, (document) => sdk.verifyProofHttp(engine, document)));
  const { proof_id, status, can_assert_validity, cause, checks, disclosed, effect, withheld } =
    envelope.response;
  const compared = compareArguments(wanted, disclosed);
  const exitCode = withArguments(
    compared,
    cause === 'not_verified_yet'
      ? EXIT.undecided
      : verdictExit(status, can_assert_validity, effect ?? undefined),
  );
  if (json) {
    terminal.printJson(compared === null ? envelope : { ...envelope, arguments: compared });
    return exitCode;
  }
  const denial = can_assert_validity ? STATED_NOTES[effect ?? 'ADMIT'] : '';
  terminal.print(styled(exitCode, cause === null ? status + denial : `${status}  (${cause})`));
  terminal.print(...row('proof', proof_id));
  printDisclosed(terminal, disclosed, withheld);
  if (compared !== null) terminal.print(...row('arguments', compared));
  for (const { name, result, detail } of checks) {
    if (result === 'fail') terminal.print(...row('failed', `${name}: ${detail ?? ''}`));
  }
  const count = (wanted: string): string =>
    String(checks.filter(({ result }) => result === wanted).length);
  const [passed, skipped, failed] = ['pass', 'not_applicable', 'fail'].map(count);
  terminal.print(...row('checks', `${passed} passed, ${skipped} not applicable, ${failed} failed`));
  return exitCode;
}

async function verifyFileOffline(invocation: Invocation<VerifyOptions>): Promise<ExitCode> {
  const { argument: file, options, json, terminal } = invocation;
  if (isProofId(file)) {
    throw new UsageError('--offline takes a file: write one with `svc export` first');
  }
  const bytes = await readInput(file);
  const stapled = attempt(() => parseEvidence(bytes))?.identifier ?? null;
  if (stapled !== null) return verifyStapled(invocation, bytes, options.id ?? stapled);
  if (options.id !== undefined || options.maxAge !== undefined) {
    throw new UsageError(`--id and --max-age need an output of \`svc evidence\``);
  }
  const trust = await readPins(options);
  if (isRunPackage(bytes)) {
    if ((options.tlogProof ?? options.arguments) !== undefined) {
      throw new UsageError('--tlog-proof and --arguments do not apply to the package of a run');
    }
    const run = sdk.verifyRun(bytes, trust);
    if (json) terminal.printJson(run);
    else printRun(terminal, run);
    return runExit(run);
  }
  const result = sdk.verifyOffline(
    bytes,
    trust,
    options.tlogProof === undefined ? {} : { tlogProof: await readInput(options.tlogProof) },
  );
  const wanted = await argumentsHash(options);
  const compared = compareArguments(wanted, result.decidable ? result.disclosed : null);
  const exitCode = withArguments(compared, offlineExit(result));
  const document = documentOf(result);
  if (json) terminal.printJson(compared === null ? document : { ...document, arguments: compared });
  else print(terminal, result, exitCode);
  if (!json && compared !== null) terminal.print(...row('arguments', compared));
  return exitCode;
}

type Comparison = 'match' | 'differ' | 'withheld';

const argumentsHash = async ({ arguments: file }: VerifyOptions): Promise<string | null> =>
  file === undefined ? null : hashOfFile(file);

/** Compares the hash of a file with the disclosed hash of the arguments; null without `--arguments`. */
function compareArguments(
  hash: string | null,
  disclosed: Record<string, unknown> | null | undefined,
): Comparison | null {
  if (hash === null) return null;
  const stated = disclosed?.['arguments_hash'];
  if (stated === undefined) return 'withheld';
  return stated === hash ? 'match' : 'differ';
}

function withArguments(compared: Comparison | null, exitCode: ExitCode): ExitCode {
  if (exitCode !== EXIT.success && exitCode !== EXIT.denied) return exitCode;
  if (compared === 'differ') return EXIT.negative;
  return compared === 'withheld' ? EXIT.undecided : exitCode;
}

function isRunPackage(bytes: Uint8Array): boolean {
  const read = attempt(() => parseStrict(bytes)) as { schema_version?: unknown } | null | undefined;
  return read?.schema_version === SCHEMA.runPackage;
}

function runExit(run: sdk.RunResult): ExitCode {
  if (!run.decidable) return EXIT.undecided;
  return run.complete ? EXIT.success : EXIT.negative;
}

function printRun(terminal: Terminal, run: sdk.RunResult): void {
  const exitCode = runExit(run);
  if (!run.decidable) {
    terminal.print(styled(exitCode, `undecidable  (${run.cause})`));
    terminal.print(...row('why', run.detail));
    return;
  }
  terminal.print(styled(exitCode, run.complete ? 'complete run' : 'not a complete run'));
  const subject = run.close?.subject;
  if (subject !== undefined && 'run' in subject) {
    terminal.print(...row('run', `${subject.run.id} of ${agentText(subject.agent)}`));
  }
  for (const { aep, leafIndex, proof_id } of run.members ?? []) {
    const isClaimed = aep !== null && 'agent' in aep.subject && !aep.subject.agent.bound;
    const effect = aep === null ? 'erased' : `${aep.decision.effect} ${aep.subject.kind}`;
    const text = `${proof_id}, leaf ${String(leafIndex)}: ${effect}`;
    terminal.print(...row('member', isClaimed ? `${text}, agent claimed by the caller` : text));
  }
  if (run.missing !== undefined && run.missing.length > 0) {
    terminal.print(...row('erased', `seq ${run.missing.join(', ')}`));
  }
  for (const { code, detail, pointer } of run.faults) {
    terminal.print(...row('fault', `${code}: ${detail} (${pointer})`));
  }
}

async function verifyStapled(
  invocation: Invocation<VerifyOptions>,
  bytes: Uint8Array,
  identifier: string,
): Promise<ExitCode> {
  const { options } = invocation;
  if ((options.aepKey ?? options.tlogProof ?? options.arguments) !== undefined) {
    throw new UsageError('--aep-key, --tlog-proof and --arguments do not apply to evidence');
  }
  if (HASH_PATTERN.test(identifier)) {
    throw new UsageError('the evidence is about a share token: give the token with --id');
  }
  const { pins, ...age } = await evidencePins(options);
  if (pins === undefined) throw new UsageError('evidence needs --pins or --log-vkey');
  const query = { kind: kindOf(identifier), identifier };
  return printLookup(invocation, identifier, sdk.verifyEvidence(bytes, query, { pins, ...age }));
}

/** The result as JSON, with the root in base64 like all Merkle hashes in documents. */
function documentOf(result: sdk.OfflineResult): object {
  if (!result.decidable || result.under === undefined) return result;
  return { ...result, under: { ...result.under, root: toBase64(result.under.root) } };
}

/** A signature without inclusion is undecided: it does not show that the log has the proof. */
function offlineExit(result: sdk.OfflineResult): ExitCode {
  if (!result.decidable) return EXIT.undecided;
  if (!result.authentic || result.included === false) return EXIT.negative;
  if (isWithdrawn(result.status)) return verdictExit(result.status, false, undefined);
  if (result.included === undefined) return EXIT.undecided;
  return statedBy(result.aep) === 'ADMIT' ? EXIT.success : EXIT.denied;
}

function statedBy(aep: Aep | undefined): Stated | undefined {
  const kind = aep?.subject.kind;
  return kind === 'outcome' || kind === 'close' ? 'REPORT' : aep?.decision.effect;
}

/** Whether an offline status means that the proof is not valid: every status but `unknown…`. */
function isWithdrawn(status: string): boolean {
  return !status.startsWith('unknown');
}

function print(terminal: Terminal, result: sdk.OfflineResult, exitCode: ExitCode): void {
  if (!result.decidable) {
    terminal.print(styled(exitCode, `undecidable  (${result.cause})`));
    terminal.print(...row('why', result.detail));
    return;
  }
  const { aep, disclosed, faults, leafIndex, status, under, withheld } = result;
  const prefix = isWithdrawn(status) ? `${status}: ` : '';
  terminal.print(styled(exitCode, prefix + headline(result, exitCode)));
  if (aep !== undefined) {
    terminal.print(...row('proof', aep.proof_id));
    terminal.print(...row('accepted at', aep.accepted_at));
    terminal.print(...row('environment', aep.environment));
    for (const [label, text] of subjectRows(aep.subject)) terminal.print(...row(label, text));
  }
  printDisclosed(terminal, disclosed, withheld);
  if (under !== undefined) {
    terminal.print(...row('log', `${under.origin}, leaf ${String(leafIndex)}`));
  }
  if (result.keyState !== undefined) {
    const why = 'unknown: a pinned root delegated the key, which may be compromised';
    terminal.print(...row('key state', why));
  }
  terminal.print(...row('status', status));
  for (const { code, detail } of faults) terminal.print(...row('fault', `${code}: ${detail}`));
  if (result.authentic && result.included === undefined) {
    const next =
      'to decide inclusion, pin the log too (--pins, --log-vkey); if no checkpoint covered the entry when you fetched the evidence, give --tlog-proof';
    terminal.print(...row('next', next));
  }
}

function printDisclosed(
  terminal: Terminal,
  disclosed: Record<string, unknown> | null | undefined,
  withheld: number | null | undefined,
): void {
  if (!disclosed) return;
  for (const [name, value] of Object.entries(disclosed)) {
    const text = typeof value === 'string' ? value : sdk.canonicalJson(value as sdk.JsonValue);
    terminal.print(...row('disclosed', `${name}: ${text}`));
  }
  terminal.print(...row('withheld', withheld === 1 ? '1 value' : `${String(withheld)} values`));
}

function headline(
  { aep, authentic, included }: Extract<sdk.OfflineResult, { decidable: true }>,
  exitCode: ExitCode,
): string {
  if (!authentic) return 'not authentic';
  if (included === undefined) return 'authentic, included: unknown';
  const note = exitCode === EXIT.denied ? STATED_NOTES[statedBy(aep) ?? 'ADMIT'] : '';
  return `authentic, ${included ? 'included' : 'not included'}${note}`;
}
