import { isProofId } from '../../../protocol/ids.js';
import { verifyProofHttp } from '../../index.js';
import type { Command, Invocation } from '../command.js';
import { EXIT, type ExitCode } from '../exit-code.js';
import { askAboutExport } from '../read-document.js';
import { UsageError } from '../usage-error.js';
import { row, styled, verdictExit } from '../verdict.js';
import { verifyFileOffline } from '../verify-offline.js';

export const verify: Command = {
  name: 'verify',
  summary: 'Whether a proof is genuine: asked of the engine, or checked here with no network',
  usage: 'PROOF_ID | FILE',
  takes: { least: 1, most: 1 },
  description:
    'FILE is what `svc export` wrote; - is standard input. Online, the verification system answers\n' +
    'check by check; that needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. With --offline nothing is\n' +
    'asked of anybody, and nothing in the file is believed but what the pinned keys signed. What it\n' +
    'says then is that the proof is authentic and in the log, never that it is valid: it may have\n' +
    'been revoked since.\n\n' +
    'Exits 0 when it is so, 4 when it is so of a denial, 1 when it is not, and 3 when nobody can\n' +
    'tell: no key pinned that fits, no log pinned, not verified yet, unreachable.',
  options: {
    offline: { type: 'boolean', help: 'check the file here, with no network' },
    pins: { type: 'string', value: 'FILE', help: 'what `svc keys` printed: the keys to believe' },
    'aep-key': { type: 'string', value: 'KEY', help: 'an AEP key to believe, in base64url' },
    'log-vkey': { type: 'string', value: 'VKEY', help: 'the log key to believe, a C2SP vkey' },
    'log-origin': {
      type: 'string',
      value: 'ORIGIN',
      help: 'of the log; else the name in its vkey',
    },
    'tlog-proof': {
      type: 'string',
      value: 'FILE',
      help: 'inclusion from this .tlog-proof instead',
    },
  },
  examples: [
    'svc verify 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc verify proof.json',
    'svc verify proof.json --offline --pins pins.json',
    'svc verify - --offline --pins pins.json --json < proof.json',
  ],
  run: (invocation) =>
    invocation.values['offline'] === true ? verifyFileOffline(invocation) : online(invocation),
};

async function online({ args, values, json, engine, terminal }: Invocation): Promise<ExitCode> {
  const [name = ''] = args;
  const offlineOnly = ['pins', 'aep-key', 'log-vkey', 'log-origin', 'tlog-proof'];
  const surplus = offlineOnly.find((option) => values[option] !== undefined);
  // Whoever pins keys wants them used: an answer that rests on others would mislead.
  if (surplus !== undefined) throw new UsageError(`--${surplus} goes with --offline`);
  const options = engine();
  const envelope = await (isProofId(name)
    ? verifyProofHttp(options, { proof_id: name })
    : askAboutExport(name, (document) => verifyProofHttp(options, document)));
  const { status, can_assert_validity, cause, checks, effect } = envelope.response;
  const code =
    cause === 'not_verified_yet'
      ? EXIT.undecided
      : verdictExit(status, can_assert_validity, effect ?? undefined);
  if (json) {
    terminal.printJson(envelope);
    return code;
  }
  terminal.print(styled(code, cause === null ? status : `${status}  (${cause})`));
  terminal.print(...row('proof', envelope.response.proof_id));
  for (const { name: check, result, detail } of checks) {
    if (result === 'fail') terminal.print(...row('failed', `${check}: ${detail ?? ''}`));
  }
  const passed = checks.filter(({ result }) => result === 'pass').length;
  terminal.print(...row('checks passed', `${String(passed)} of ${String(checks.length)}`));
  return code;
}
