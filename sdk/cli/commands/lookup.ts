import { setTimeout as sleep } from 'node:timers/promises';
import { Option } from 'commander';
import { utf8 } from '../../../protocol/bytes.js';
import { isProofId } from '../../../protocol/ids.js';
import { lookupNameOf, pathLookupOf } from '../../../protocol/lookup-routes.js';
import { isReportAnswer } from '../../../protocol/status.js';
import * as sdk from '../../index.js';
import { type CommandSpec, type Invocation, UsageError } from '../config.js';
import { outOption, writeOutput } from '../files.js';
import { evidencePinOptions, evidencePins, logPinOptions, type PinOptions } from '../pins.js';
import {
  EXIT,
  type ExitCode,
  type Part,
  type Stated,
  verdictExit,
  row,
  styled,
} from '../terminal.js';

interface LookupOptions extends PinOptions {
  kind?: sdk.LookupKind;
  view?: keyof typeof VIEWS;
  wait?: boolean;
}

/** The public API's answers about an artifact besides its verdict. */
const VIEWS = {
  history: sdk.readHistoryHttp,
  'trust-chain': sdk.readTrustChainHttp,
  package: (options: sdk.PublicOptions, { identifier }: sdk.ViewQuery) =>
    sdk.readTrustPackageHttp(options, { trust_id: identifier }),
};

const kindOption = new Option('--kind <KIND>', 'kind of the ID (default: by its form)').choices(
  sdk.LOOKUP_KINDS,
);

export const lookupCommand: CommandSpec<LookupOptions> = {
  name: 'lookup',
  summary:
    'Look up the public verdict on a proof, certificate, passport, trust artifact, share or package',
  description:
    'Needs SVC_PUBLIC_URL and no key. Exits 0 when the verdict asserts validity, 4 when it asserts the validity of a proof that permits nothing (of a denial, a required approval or a report), 1 when it asserts no validity, and 3 without a verdict: not verified yet, not resolved, or registry unreachable. With a pinned log, the command verifies the verdict against evidence of the log; it exits 1 when the evidence does not prove the verdict, and 3 when the evidence is too old.',
  examples: [
    'svc lookup 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc lookup cert_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --json',
  ],
  argument: '<ID>',
  options: [
    kindOption,
    ['--wait', 'while the ID is too new for the public snapshot, look it up again'],
    new Option('--view <VIEW>', 'print this document in place of the verdict').choices(
      Object.keys(VIEWS),
    ),
    ...evidencePinOptions,
  ],
  run: async (invocation) => {
    const { argument: identifier, options, registry } = invocation;
    const kind = options.kind ?? kindOf(identifier);
    const call = { ...registry(), ...(await evidencePins(options)) };
    const wait = options.wait === true;
    if (options.view === undefined || wait) {
      const found = await whenCosigned(call, () =>
        sdk.lookupHttp(call, { kind, identifier, wait }),
      );
      if (options.view === undefined) return printLookup(invocation, identifier, found);
    }
    const query = { kind, identifier } as sdk.ViewQuery;
    const view = VIEWS[options.view];
    const { record, evidence } = await whenCosigned(call, async () => view(call, query));
    const found = await whenCosigned(call, () => sdk.lookupHttp(call, query));
    invocation.terminal.printJson(record);
    for (const parts of evidenceRows(evidence)) invocation.terminal.printError(...parts);
    return viewExit(identifier, record, found);
  },
};

export const evidenceCommand: CommandSpec<LookupOptions & { out?: string }> = {
  name: 'evidence',
  summary: 'Retrieve the evidence behind a public verdict, as a file for offline verification',
  description:
    'Needs SVC_PUBLIC_URL and no key. With a pinned log, the command verifies the evidence before it writes it. `svc verify --offline` reads the file.',
  examples: [
    'svc evidence 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f > evidence.json',
    'svc evidence cert_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --pins pins.json -o evidence.json',
  ],
  argument: '<ID>',
  options: [kindOption, outOption, ...evidencePinOptions],
  run: async ({ argument: identifier, options, registry, terminal }) => {
    const query = { kind: options.kind ?? kindOf(identifier), identifier };
    const call = { ...registry(), ...(await evidencePins(options)) };
    const { bytes, evidence } = await whenCosigned(call, () => sdk.readEvidenceHttp(call, query));
    if (options.out === undefined) terminal.printBytes(bytes);
    else await writeOutput(options.out, bytes);
    for (const parts of evidenceRows(evidence)) terminal.printError(...parts);
    return EXIT.success;
  },
};

const COSIGN_MS = 10_000;
const COSIGN_POLL_MS = 250;

/** Repeats a call that lacks the quorum: witnesses cosign a checkpoint after its publication. */
async function whenCosigned<T>(
  { timeoutMs = COSIGN_MS }: sdk.CallOptions,
  read: () => Promise<T>,
): Promise<T> {
  let deadline: number | undefined;
  for (;;) {
    try {
      return await read();
    } catch (error) {
      const isEarly = error instanceof sdk.SdkError && error.fault === 'quorum_not_met';
      // The call itself may have waited long, for a snapshot.
      deadline ??= performance.now() + Math.min(timeoutMs, COSIGN_MS);
      if (!isEarly || performance.now() > deadline) throw error;
    }
    await sleep(COSIGN_POLL_MS);
  }
}

const NOTHING_VERIFIED = 'nothing: the registry is trusted; pin the log to verify';

/** Rows with the verified facts, and with the log key and witnesses that the reader trusts without verification. */
function evidenceRows(evidence: sdk.Proved | null): Part[][] {
  if (evidence === null) {
    return [row('verified', NOTHING_VERIFIED)];
  }
  const { proofs, age_ms, trusted, log_index } = evidence;
  const found = proofs.filter((one) => one.found).length;
  const counts = `proofs found: ${String(found)}, absent: ${String(proofs.length - found)}`;
  const { log_origin, log_key_id, witnesses } = trusted;
  const by = witnesses.length === 0 ? 'no witness' : `witnesses ${witnesses.join(', ')}`;
  return [
    row('verified', `${counts}; in the snapshot at leaf ${String(log_index)}`),
    row('age', `${String(Math.floor(age_ms / 1000))} s`),
    row('trusted', `log ${log_origin}, key ${log_key_id}, ${by}`),
  ];
}

export const logCommand: CommandSpec<PinOptions & { out?: string }> = {
  name: 'log',
  summary: 'Retrieve an entry of the public log, and its inclusion proof',
  description:
    'Needs SVC_PUBLIC_URL and no key. Prints the entry; -o writes its C2SP .tlog-proof to a file. With a pinned log, the command verifies the inclusion, and exits 1 when the log does not include the entry.',
  examples: ['svc log 0', 'svc log 17 --pins pins.json -o entry-17.tlog-proof'],
  argument: '<LEAF_INDEX>',
  options: [outOption, ...logPinOptions],
  run: async ({ argument, options, registry, terminal }) => {
    if (!/^(0|[1-9][0-9]{0,14})$/.test(argument)) {
      throw new UsageError(`${argument} is not a leaf index: give an integer of 0 or more`);
    }
    const call = { ...registry(), ...(await evidencePins(options)) };
    const entry = { leaf_index: Number(argument) };
    const found = await whenCosigned(call, () => sdk.readLogEntryHttp(call, entry));
    terminal.printJson(found.entry);
    if (options.out !== undefined) await writeOutput(options.out, utf8(found.tlogProof));
    terminal.printError(...row('verified', found.verified ? 'in the log' : NOTHING_VERIFIED));
    return EXIT.success;
  },
};

export const keysCommand: CommandSpec = {
  name: 'keys',
  summary: 'Print the keys that the registry publishes, as a file to pin',
  description:
    'Needs SVC_PUBLIC_URL and no key. The output is the input of `svc verify --offline --pins`. Pinning trusts the registry once: compare the keys with those that the operator publishes elsewhere.',
  examples: ['svc keys > pins.json'],
  run: async ({ registry, terminal }) => {
    const { record } = await sdk.readPublicKeysHttp(registry());
    terminal.printJson(record);
    return EXIT.success;
  },
};

export const STATED_NOTES = {
  ADMIT: '',
  DENY: '  (of a denial)',
  REQUIRE_APPROVAL: '  (of a required approval)',
  REPORT: '  (of a report: an outcome, or a closed run)',
};

const statedBy = ({ record }: sdk.Lookup): Stated | undefined => {
  if (!('artifact' in record) || !('effect' in record.artifact)) return undefined;
  return isReportAnswer(record.artifact, record.references) ? 'REPORT' : record.artifact.effect;
};

/**
 * Whether evidence proves that a proof with the status NOT_FOUND is in the log, and so only lacks a verdict. Not for an
 * id of the proof's artifacts, which is NOT_FOUND on a route for proof ids even if the proof has a verdict.
 */
const awaitsVerdict = (
  identifier: string,
  { verification_status: status, evidence }: sdk.Lookup,
): boolean =>
  isProofId(identifier) &&
  status === 'NOT_FOUND' &&
  evidence?.proofs.some(({ found }) => found) === true;

const lookupExit = (identifier: string, found: sdk.Lookup): ExitCode =>
  found.retryAfterMs !== null || awaitsVerdict(identifier, found)
    ? EXIT.undecided
    : verdictExit(found.verification_status, found.can_assert_validity, statedBy(found));

/** Success only if both the view and the verdict assert validity: their kinds or snapshots may differ. */
const viewExit = (
  identifier: string,
  view: Pick<sdk.Lookup, 'verification_status' | 'can_assert_validity'>,
  found: sdk.Lookup,
): ExitCode =>
  view.can_assert_validity
    ? lookupExit(identifier, found)
    : verdictExit(view.verification_status, false, undefined);

export function printLookup(
  { json, terminal }: Pick<Invocation, 'json' | 'terminal'>,
  identifier: string,
  found: sdk.Lookup,
): ExitCode {
  const { verification_status: status, record, snapshot } = found;
  const exitCode = lookupExit(identifier, found);
  if (json) {
    terminal.printJson(found);
    return exitCode;
  }
  terminal.print(styled(exitCode, status + STATED_NOTES[statedBy(found) ?? 'ADMIT']));
  terminal.print(...row('identifier', identifier));
  if ('artifact_kind' in record) {
    const { artifact, artifact_kind, verification, integrity } = record;
    terminal.print(...row('kind', artifact_kind));
    if ('environment' in artifact) terminal.print(...row('environment', artifact.environment));
    if (verification.verified_at !== undefined) {
      terminal.print(...row('verified at', verification.verified_at));
    }
    if ('leaf_index' in integrity) {
      const { accepted_at, log_origin, leaf_index } = integrity;
      terminal.print(...row('accepted at', accepted_at));
      terminal.print(...row('log', `${log_origin}, leaf ${String(leaf_index)}`));
    }
  }
  terminal.print(...row('as of', `${String(snapshot.tree_size)} leaves, at ${snapshot.issued_at}`));
  if (awaitsVerdict(identifier, found)) {
    terminal.print(...row('not verified', 'the log has this proof, but no verdict on it yet'));
  } else if (found.retryAfterMs !== null) {
    terminal.print(...row('too new', 'the snapshot may not cover this ID yet: add --wait'));
  }
  for (const parts of evidenceRows(found.evidence)) terminal.print(...parts);
  return exitCode;
}

/** The kind of an identifier, else `identifier`, which resolves only among recent proofs. */
export function kindOf(identifier: string): sdk.LookupKind {
  const path = lookupNameOf(identifier) === null ? null : pathLookupOf(identifier);
  return path ?? 'identifier';
}
