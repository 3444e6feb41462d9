import {
  type Facade,
  type Lookup,
  LOOKUP_KINDS,
  lookupHttp,
  type LookupKind,
} from '../../index.js';
import { isPackageId, isProofId, isShareToken, resolveIdentifier } from '../../../protocol/ids.js';
import { text, type Command } from '../command.js';
import type { Terminal } from '../terminal.js';
import { UsageError } from '../usage-error.js';
import { row, styled, verdictExit } from '../verdict.js';

export const lookup: Command = {
  name: 'lookup',
  summary: 'The public verdict on a proof, certificate, passport, trust artifact, share or package',
  usage: 'ID',
  takes: { least: 1, most: 1 },
  description:
    'Needs SVC_PUBLIC_URL and no key. Exits 0 when the verdict asserts validity, 4 when it does of a\n' +
    'denial, 1 when it does not, and 3 when there is none: not verified yet, not resolved, or the\n' +
    'registry cannot be reached.',
  options: {
    kind: {
      type: 'string',
      value: 'KIND',
      help: `${LOOKUP_KINDS.join(', ')}; else as the id looks`,
    },
  },
  examples: [
    'svc lookup 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc lookup cert_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --json',
  ],
  run: async ({ args: [identifier = ''], values, json, registry, terminal }) => {
    const asked = text(values, 'kind');
    const kind =
      asked === undefined ? kindOf(identifier) : LOOKUP_KINDS.find((one) => one === asked);
    if (kind === undefined) throw new UsageError(`--kind takes one of ${LOOKUP_KINDS.join(', ')}`);
    const found = await lookupHttp(registry(), { kind, identifier });
    if (json) terminal.printJson(found);
    else show(terminal, identifier, found);
    return lookupExit(found);
  },
};

export function lookupExit(found: Lookup): ReturnType<typeof verdictExit> {
  return verdictExit(found.verification_status, found.can_assert_validity, effectOf(found));
}

export function show(terminal: Terminal, identifier: string, found: Lookup): void {
  const { verification_status: status, record, snapshot } = found;
  const denial = effectOf(found) === 'DENY' ? '  (of a denial)' : '';
  terminal.print(styled(lookupExit(found), status + denial));
  terminal.print(...row('identifier', identifier));
  if ('artifact_kind' in record) showFacade(terminal, record);
  terminal.print(...row('as of', `${String(snapshot.tree_size)} leaves, at ${snapshot.issued_at}`));
}

function showFacade(terminal: Terminal, { artifact_kind, verification, integrity }: Facade): void {
  terminal.print(...row('kind', artifact_kind));
  if (verification.verified_at !== undefined) {
    terminal.print(...row('verified at', verification.verified_at));
  }
  if ('leaf_index' in integrity) {
    terminal.print(...row('accepted at', integrity.accepted_at));
    terminal.print(...row('log', `${integrity.log_origin}, leaf ${String(integrity.leaf_index)}`));
  }
}

function effectOf({ record }: Lookup): 'ADMIT' | 'DENY' | undefined {
  return 'artifact' in record && 'effect' in record.artifact ? record.artifact.effect : undefined;
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

/** What has a route of its own is found over the whole history; the rest among recent proofs. */
function kindOf(identifier: string): LookupKind {
  if (isProofId(identifier)) return 'proof';
  if (isShareToken(identifier)) return 'share';
  if (isPackageId(identifier)) return 'package';
  return KINDS[resolveIdentifier(identifier)?.matched_on ?? ''] ?? 'identifier';
}
