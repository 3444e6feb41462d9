import { toBase64 } from '../../../protocol/bytes.js';
import { isProofId } from '../../../protocol/ids.js';
import { openSchema } from '../../../protocol/schemas/open-schema.js';
import { publicKeysSchema } from '../../../protocol/snapshot/keys.js';
import { pinsOf, verifyOffline, type OfflineResult, type OfflineTrust } from '../../index.js';
import { type Invocation, UsageError } from '../config.js';
import { EXIT, type ExitCode } from '../exit-code.js';
import { readDocument, readInput } from '../files.js';
import { row, styled, type Terminal } from '../terminal.js';

export interface OfflineOptions {
  pins?: string;
  aepKey?: string;
  logVkey?: string;
  logOrigin?: string;
  tlogProof?: string;
}

export async function verifyFileOffline(invocation: Invocation<OfflineOptions>): Promise<ExitCode> {
  const { argument: file, options, json, terminal } = invocation;
  if (isProofId(file)) {
    throw new UsageError('--offline takes a file: write one with `svc export` first');
  }
  const trust = await readPins(options);
  const result = verifyOffline(
    await readInput(file),
    trust,
    options.tlogProof === undefined ? {} : { tlogProof: await readInput(options.tlogProof) },
  );
  const exitCode = offlineExit(result);
  if (json) terminal.printJson(documentOf(result));
  else print(terminal, result, exitCode);
  return exitCode;
}

async function readPins({ pins, aepKey, logVkey, logOrigin }: OfflineOptions) {
  if (pins !== undefined) {
    if (aepKey ?? logVkey ?? logOrigin) {
      throw new UsageError('give --pins or single keys, not both');
    }
    const keys = openSchema(publicKeysSchema).safeParse(await readDocument(pins)).data;
    if (keys === undefined) throw new UsageError(`${pins} is not what \`svc keys\` prints`);
    return pinsOf(keys);
  }
  const trust: OfflineTrust = { aepKeys: aepKey === undefined ? [] : [aepKey] };
  if (logVkey === undefined) {
    if (logOrigin !== undefined) throw new UsageError('--log-origin needs --log-vkey');
    return trust;
  }
  const origin = logOrigin ?? logVkey.split('+')[0] ?? '';
  return { ...trust, log: { vkey: logVkey, origin } };
}

/** The root in base64, the form of Merkle hashes in documents. */
function documentOf(result: OfflineResult): unknown {
  if (!result.decidable || result.under === undefined) return result;
  return { ...result, under: { ...result.under, root: toBase64(result.under.root) } };
}

/** A signature without inclusion is undecided: it does not show that the log has the proof. */
function offlineExit(result: OfflineResult): ExitCode {
  if (!result.decidable) return EXIT.undecided;
  if (!result.authentic || result.included === false) return EXIT.negative;
  if (result.included === undefined) return EXIT.undecided;
  return result.aep?.decision.effect === 'ADMIT' ? EXIT.success : EXIT.denied;
}

function print(terminal: Terminal, result: OfflineResult, exitCode: ExitCode): void {
  if (!result.decidable) {
    terminal.print(styled(exitCode, `undecidable  (${result.cause})`));
    terminal.print(...row('why', result.detail));
    return;
  }
  const { aep, status, faults, under, leafIndex } = result;
  terminal.print(styled(exitCode, headline(result, exitCode)));
  if (aep !== undefined) {
    terminal.print(...row('proof', aep.proof_id));
    terminal.print(...row('accepted at', aep.accepted_at));
  }
  if (under !== undefined) {
    terminal.print(...row('log', `${under.origin}, leaf ${String(leafIndex)}`));
  }
  terminal.print(...row('status', status));
  for (const { code, detail } of faults) terminal.print(...row('fault', `${code}: ${detail}`));
  if (result.authentic && result.included === undefined) {
    terminal.print(...row('next', 'pin the log too (--pins, --log-vkey) to decide inclusion'));
  }
}

function headline(
  { authentic, included }: { authentic: boolean; included?: boolean | undefined },
  exitCode: ExitCode,
): string {
  if (!authentic) return 'not authentic';
  if (included === undefined) return 'authentic, included: unknown';
  const denial = exitCode === EXIT.denied ? ', of a denial' : '';
  return `authentic, ${included ? 'included' : 'not included'}${denial}`;
}
