import { toBase64 } from '../../protocol/bytes.js';
import { isProofId } from '../../protocol/ids.js';
import { verifyOffline, type OfflineResult } from '../index.js';
import { type Invocation, text } from './command.js';
import { EXIT, type ExitCode } from './exit-code.js';
import { readInput } from './input.js';
import { readPins } from './pins.js';
import type { Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';
import { row, styled } from './verdict.js';

/** `svc verify --offline`. */
export async function verifyFileOffline(invocation: Invocation): Promise<ExitCode> {
  const { args, values, json, terminal } = invocation;
  const [name = ''] = args;
  if (isProofId(name)) {
    throw new UsageError('--offline takes a file: write one with `svc export` first');
  }
  const tlogProof = text(values, 'tlog-proof');
  const trust = await readPins(values);
  const result = verifyOffline(
    await readInput(name),
    trust,
    tlogProof === undefined ? {} : { tlogProof: await readInput(tlogProof) },
  );
  if (json) terminal.printJson(documentOf(result));
  else show(terminal, result);
  return offlineExit(result);
}

/** The root in base64, as documents have Merkle hashes: JSON has no bytes. */
function documentOf(result: OfflineResult): unknown {
  if (!result.decidable || result.under === undefined) return result;
  return { ...result, under: { ...result.under, root: toBase64(result.under.root) } };
}

/** Authentic alone is half of it: without the log, nobody knows whether it was ever appended. */
function offlineExit(result: OfflineResult): ExitCode {
  if (!result.decidable) return EXIT.undecided;
  if (!result.authentic || result.included === false) return EXIT.no;
  if (result.included === undefined) return EXIT.undecided;
  return result.aep?.decision.effect === 'ADMIT' ? EXIT.yes : EXIT.denied;
}

function show(terminal: Terminal, result: OfflineResult): void {
  const code = offlineExit(result);
  if (!result.decidable) {
    terminal.print(styled(code, `undecidable  (${result.cause})`));
    terminal.print(...row('why', result.detail));
    return;
  }
  const { authentic, included, aep, status, faults, under, leafIndex } = result;
  const denial = code === EXIT.denied ? ', of a denial' : '';
  const said = (is: boolean | undefined, what: string): string =>
    is === undefined ? `${what}: unknown` : is ? what : `not ${what}`;
  const words = authentic
    ? `${said(authentic, 'authentic')}, ${said(included, 'included')}${denial}`
    : 'not authentic';
  terminal.print(styled(code, words));
  if (aep !== undefined) {
    terminal.print(...row('proof', aep.proof_id));
    terminal.print(...row('accepted at', aep.accepted_at));
  }
  if (under !== undefined) {
    terminal.print(...row('log', `${under.origin}, leaf ${String(leafIndex)}`));
  }
  terminal.print(...row('status', status));
  for (const { code: fault, detail } of faults)
    terminal.print(...row('fault', `${fault}: ${detail}`));
  if (authentic && included === undefined) {
    terminal.print(...row('next', 'pin the log as well (--pins, --log-vkey) to decide inclusion'));
  }
}
