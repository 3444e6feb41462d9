import { Option, type Command } from 'commander';
import { isPackageId, isProofId, isShareToken, resolveIdentifier } from '../../../protocol/ids.js';
import {
  LOOKUP_KINDS,
  lookupHttp,
  readPublicKeysHttp,
  type Lookup,
  type LookupKind,
} from '../../index.js';
import { type AddCommand, type Invocation } from '../config.js';
import { EXIT, type ExitCode, verdictExit, row, styled } from '../terminal.js';

export function addLookup(add: AddCommand): Command {
  return add<{ kind?: LookupKind }>(
    {
      name: 'lookup',
      summary:
        'Look up the public verdict on a proof, certificate, passport, trust artifact, share or package',
      description:
        'Needs SVC_PUBLIC_URL and no key. Exits 0 when the verdict asserts validity, 4 when it asserts the validity of a denial, 1 when it does not, and 3 without a verdict: not verified yet, not resolved, or registry unreachable.',
      examples: [
        'svc lookup 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
        'svc lookup cert_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --json',
      ],
    },
    async (invocation) => {
      const { argument: identifier, options, registry } = invocation;
      const kind = options.kind ?? kindOf(identifier);
      return printLookup(invocation, await lookupHttp(registry(), { kind, identifier }));
    },
  )
    .argument('<ID>')
    .addOption(
      new Option('--kind <KIND>', 'kind of the ID (default: by its form)').choices(LOOKUP_KINDS),
    );
}

export function addKeys(add: AddCommand): Command {
  return add(
    {
      name: 'keys',
      summary: 'Print the keys that the registry publishes, as a file to pin',
      description:
        'Needs SVC_PUBLIC_URL and no key. The output is the input of `svc verify --offline --pins`. Pinning trusts the registry once: compare the keys with those that the operator publishes elsewhere.',
      examples: ['svc keys > pins.json'],
    },
    async ({ registry, terminal }) => {
      const { record } = await readPublicKeysHttp(registry());
      terminal.printJson(record);
      return EXIT.success;
    },
  );
}

export function printLookup(
  { argument: identifier, json, terminal }: Invocation,
  found: Lookup,
): ExitCode {
  const { verification_status: status, record, snapshot } = found;
  const effect =
    'artifact' in record && 'effect' in record.artifact ? record.artifact.effect : undefined;
  const exitCode = verdictExit(status, found.can_assert_validity, effect);
  if (json) {
    terminal.printJson(found);
    return exitCode;
  }
  terminal.print(styled(exitCode, status + (effect === 'DENY' ? '  (of a denial)' : '')));
  terminal.print(...row('identifier', identifier));
  if ('artifact_kind' in record) {
    const { artifact_kind, verification, integrity } = record;
    terminal.print(...row('kind', artifact_kind));
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
  return exitCode;
}

const KINDS: Partial<Record<string, LookupKind>> = {
  certificate_id: 'certificate',
  certificate_ref: 'certificate',
  passport_id: 'passport',
  passport_ref: 'passport',
  execution_passport_id: 'passport',
  trust_id: 'trust',
  trust_ref: 'trust',
  trust_asset_id: 'trust-asset',
};

/** The kind of an identifier, else `identifier`, which resolves only among recent proofs. */
function kindOf(identifier: string): LookupKind {
  if (isProofId(identifier)) return 'proof';
  if (isShareToken(identifier)) return 'share';
  if (isPackageId(identifier)) return 'package';
  return KINDS[resolveIdentifier(identifier)?.matched_on ?? ''] ?? 'identifier';
}
