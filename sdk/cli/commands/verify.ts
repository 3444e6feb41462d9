import type { Command } from 'commander';
import { isProofId } from '../../../protocol/ids.js';
import { verifyProofHttp } from '../../index.js';
import { type AddCommand, type Invocation, UsageError } from '../config.js';
import { EXIT, type ExitCode, verdictExit } from '../exit-code.js';
import { sendExport } from '../files.js';
import { row, styled } from '../terminal.js';
import { verifyFileOffline, type OfflineOptions } from './verify-offline.js';

type VerifyOptions = OfflineOptions & { offline?: true };

export function addVerify(add: AddCommand): Command {
  return add<VerifyOptions>(
    {
      name: 'verify',
      summary: 'Verify a proof with the verification system, or offline with pinned keys',
      description:
        'FILE is an output of `svc export`; - reads standard input. Online, the verification system answers check by check; this needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. --offline sends no request, and trusts only signatures of the pinned keys. The offline result is that the proof is authentic and in the log, never that it is valid: the proof may have been revoked since.\n\n' +
        'Exits 0 for a proof of an admission, 4 for a proof of a denial, 1 for a proof that fails, and 3 when undecided: no matching key pinned, no log pinned, not verified yet, or unreachable.',
      examples: [
        'svc verify 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
        'svc verify proof.json',
        'svc verify proof.json --offline --pins pins.json',
        'svc verify - --offline --pins pins.json --json < proof.json',
      ],
    },
    (invocation) =>
      invocation.options.offline === true ? verifyFileOffline(invocation) : online(invocation),
  )
    .argument('<PROOF_ID|FILE>')
    .option('--offline', 'check the file here, without a network')
    .option('--pins <FILE>', 'trust the keys in this output of `svc keys`')
    .option('--aep-key <KEY>', 'trust this AEP key, in base64url')
    .option('--log-vkey <VKEY>', 'trust this log key, a C2SP vkey')
    .option('--log-origin <ORIGIN>', 'origin of the log (default: the name in its vkey)')
    .option('--tlog-proof <FILE>', 'check inclusion with this .tlog-proof instead');
}

async function online(invocation: Invocation<VerifyOptions>): Promise<ExitCode> {
  const { argument, options, json, terminal } = invocation;
  const { pins, aepKey, logVkey, logOrigin, tlogProof } = options;
  // An answer that depends on other keys than the pinned ones would mislead.
  if ([pins, aepKey, logVkey, logOrigin, tlogProof].some((value) => value !== undefined)) {
    throw new UsageError('pinned keys and --tlog-proof need --offline');
  }
  const engine = invocation.engine();
  const envelope = await (isProofId(argument)
    ? verifyProofHttp(engine, { proof_id: argument })
    : sendExport(argument, (document) => verifyProofHttp(engine, document)));
  const { proof_id, status, can_assert_validity, cause, checks, effect } = envelope.response;
  const exitCode =
    cause === 'not_verified_yet'
      ? EXIT.undecided
      : verdictExit(status, can_assert_validity, effect ?? undefined);
  if (json) {
    terminal.printJson(envelope);
    return exitCode;
  }
  const denial = can_assert_validity && effect === 'DENY' ? '  (of a denial)' : '';
  terminal.print(styled(exitCode, cause === null ? status + denial : `${status}  (${cause})`));
  terminal.print(...row('proof', proof_id));
  for (const { name, result, detail } of checks) {
    if (result === 'fail') terminal.print(...row('failed', `${name}: ${detail ?? ''}`));
  }
  const count = (wanted: string): string =>
    String(checks.filter(({ result }) => result === wanted).length);
  const [passed, skipped, failed] = ['pass', 'not_applicable', 'fail'].map(count);
  terminal.print(...row('checks', `${passed} passed, ${skipped} not applicable, ${failed} failed`));
  return exitCode;
}
