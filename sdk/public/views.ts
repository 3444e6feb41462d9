import type * as z from 'zod';
import { toHex } from '../../protocol/bytes.js';
import type { ProvedAnswer } from '../../protocol/evidence/answer.js';
import { resolveIdentifier } from '../../protocol/ids.js';
import { BY_PATH } from '../../protocol/lookup-routes.js';
import {
  type Facade,
  historySchema,
  trustChainSchema,
  trustPackageSchema,
  type PublicHistory,
  type PublicTrustChain,
  type PublicTrustPackage,
} from '../../protocol/schemas/facade.js';
import { publicKeysSchema, type PublicKeys } from '../../protocol/snapshot/keys.js';
import {
  chainView,
  historyView,
  membersOf,
  type RecordedProof,
} from '../../protocol/state/views.js';
import { formatTime } from '../../protocol/time.js';
import { httpError, readDocument, unexpected } from '../http/answers.js';
import { type Answer, withDeadline } from '../http/attempt.js';
import { invalidInput, type PublicOptions } from '../options.js';
import {
  evidenceRequest,
  openRegistry,
  pathSegment,
  type PublicAnswer,
  readVerified,
  requireAbout,
  snapshotOf,
} from './lookup.js';

/** Kinds of artifacts with views besides the verdict. */
export type ViewedKind = 'certificate' | 'passport' | 'trust';

interface View<T> {
  /** The last path segment of this view, by kind of artifact. */
  names: Partial<Record<ViewedKind | 'proof', string>>;
  schema: z.ZodType<T>;
  /** The document that evidence proves; members that the evidence does not prove are as served. */
  prove: (answer: ProvedAnswer, served: T) => T;
  /** Throws unless every part of a served document is about the identifier. */
  checkParts?: (answer: Answer, record: T, identifier: string) => void;
}

const HISTORY: View<PublicHistory> = {
  names: { proof: 'history', certificate: 'history', passport: 'history', trust: 'timeline' },
  schema: historySchema,
  prove: ({ response, proof }) => historyView(response as Facade, proof),
};
const CHAIN: View<PublicTrustChain> = {
  names: { certificate: 'trust-chain', passport: 'trust-chain', trust: 'chain' },
  schema: trustChainSchema,
  prove: ({ response, proof }) => chainView(response as Facade, proof),
};
const PACKAGE: View<PublicTrustPackage> = {
  names: { trust: 'package' },
  schema: trustPackageSchema,
  prove: provedPackage,
  checkParts: (answer, { facade, history, chain, evidence }, identifier) => {
    for (const part of [facade, history, chain]) requireAbout(answer, part, identifier, 'trust');
    const proofId = resolveIdentifier(identifier)?.proof_id;
    if (evidence !== null && evidence.log_entry.proof_id !== proofId) {
      throw unexpected(answer, 'the evidence is not about the requested proof');
    }
  },
};

/** The artifact of a view. */
export interface ViewQuery {
  kind: ViewedKind;
  identifier: string;
}

/**
 * `/history` of a proof, certificate or passport, `/timeline` of a trust artifact: its status history.
 * A `revoked` event has the leaf index of the log entry that revokes the artifact.
 */
export function readHistoryHttp(
  options: PublicOptions,
  input: ViewQuery | { kind: 'proof'; identifier: string },
): Promise<PublicAnswer<PublicHistory>> {
  return readView(options, input, HISTORY);
}

/** `/trust-chain`, or `/chain` of a trust artifact: each stage with its verdict. */
export function readTrustChainHttp(
  options: PublicOptions,
  input: ViewQuery,
): Promise<PublicAnswer<PublicTrustChain>> {
  return readView(options, input, CHAIN);
}

/**
 * `/package` of a trust artifact: lookup response, history, chain and the evidence of inclusion in
 * the log, all of one snapshot. `record.evidence` is null for an unresolved id.
 */
export function readTrustPackageHttp(
  options: PublicOptions,
  { trust_id: identifier }: { trust_id: string },
): Promise<PublicAnswer<PublicTrustPackage>> {
  return readView(options, { kind: 'trust', identifier }, PACKAGE);
}

/**
 * Checks that the log entry is that of the proved record. Returns the inclusion proof and the keys as
 * served.
 */
function provedPackage(
  { response, proof }: ProvedAnswer,
  { schema_version, evidence }: PublicTrustPackage,
): PublicTrustPackage {
  const facade = response as Facade;
  const served = evidence ?? ({} as NonNullable<typeof evidence>);
  return {
    schema_version,
    ...membersOf(facade),
    facade,
    history: historyView(facade, proof),
    chain: chainView(facade, proof),
    evidence: proof && {
      ...served,
      leaf_index: proof.proof.leafIndex,
      log_entry: { ...served.log_entry, ...entryOf(proof) },
    },
  };
}

/** The members of a proof entry that its record proves: all but the id of a key that was never activated. */
function entryOf({ key, proof, proofId }: RecordedProof) {
  const ends = proof.ends.map((end) => (end === null ? null : formatTime(end)));
  const [own = null, passport = null, certificate = null, trust = null] = ends;
  return {
    proof_id: proofId,
    aep_hash: toHex(proof.aepHash),
    proof_record_hash: toHex(proof.proofRecordHash),
    effect: proof.effect,
    environment: proof.isLive ? ('live' as const) : ('sandbox' as const),
    time: formatTime(proof.acceptedAt),
    valid_until: { proof: own, passport, certificate, trust },
    ...(key !== null && { key_id: key.keyId }),
  };
}

/**
 * `GET /api/public/keys`: the keys that the registry publishes. Keys and proofs come from the same
 * source: compare the keys with another source before you trust them.
 */
export async function readPublicKeysHttp(
  options: PublicOptions,
): Promise<PublicAnswer<PublicKeys>> {
  const answer = await openRegistry(options).read({ method: 'GET', path: '/api/public/keys' });
  const record = readDocument(answer, publicKeysSchema);
  return { record, snapshot: snapshotOf(answer), evidence: null };
}

async function readView<T extends PublicHistory | PublicTrustChain | PublicTrustPackage>(
  options: PublicOptions,
  { kind, identifier }: Parameters<typeof readHistoryHttp>[1],
  { names, schema, prove, checkParts }: View<T>,
): Promise<PublicAnswer<T>> {
  const name = Object.hasOwn(names, kind) ? names[kind] : undefined;
  if (name === undefined) {
    const message = `the kind must be one of ${Object.keys(names).join(', ')}`;
    throw invalidInput('/kind', message);
  }
  const registry = openRegistry(options);
  const path = `/api/public/${kind}/${pathSegment(identifier)}/${name}`;
  const read = (answer: Answer): T => {
    if (answer.status !== 200) throw httpError(answer);
    const record = readDocument(answer, schema);
    requireAbout(answer, record, identifier, kind);
    checkParts?.(answer, record, identifier);
    return record;
  };
  const { record, snapshot, evidence } = await withDeadline(options, (deadline) =>
    readVerified(registry, { method: 'GET', path }, deadline, {
      identifier,
      route: { ...BY_PATH[kind], unmatched: kind },
      evidence: evidenceRequest(identifier),
      read,
      prove,
    }),
  );
  return { record, snapshot, evidence };
}
