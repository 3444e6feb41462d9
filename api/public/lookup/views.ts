import { toHex, utf8 } from '#protocol/bytes';
import { parseStrict } from '#protocol/json';
import type { VerdictRoute } from '#protocol/lookup-routes';
import type { Facade, PublicTrustPackage } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofEntrySchema } from '#protocol/schemas/log-entry';
import { unresolvedBody } from '#protocol/state/answers';
import { malformed } from '#protocol/snapshot/location';
import { decodeHistoryOf } from '#protocol/state/record';
import { chainView, historyView, membersOf, type RecordedProof } from '#protocol/state/views';
import type { ArtifactKind } from '#protocol/status';
import type { PublicContext } from '../operation.js';
import { CACHE_VERDICT, hashTag, JSON_TYPE, type Answer } from '../http/answer.js';
import { entryAt, keysOf, tlogProofAt } from '../log/files.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import type { Resolved } from './resolve.js';

/** The response of the verify route as a document, from which the views are derived. */
export const lookupResponse = ({ body }: Resolved): Facade => JSON.parse(body) as Facade;

export function unresolvedResponse(kind: ArtifactKind, requested: string): Facade {
  return JSON.parse(unresolvedBody(kind, requested)) as Facade;
}

export function proofIn(resolved: Resolved | null): RecordedProof | null {
  const [found] = resolved?.proofs ?? [];
  return found ? { ...found, history: decodeHistoryOf(found.proof, found.history) } : null;
}

/** Reads verdict and inclusion proof from one snapshot, so that both are under one checkpoint. */
export async function trustPackageOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  resolved: Resolved | null,
): Promise<PublicTrustPackage> {
  const proof = proofIn(resolved);
  return {
    schema_version: SCHEMA.trustPackage,
    ...membersOf(response),
    facade: response,
    history: historyView(response, proof),
    chain: chainView(response, proof),
    evidence: resolved === null ? null : await evidenceOf(ctx, snapshot, resolved),
  };
}

async function evidenceOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  { proofs: [{ proofId, proof }] }: Resolved,
): Promise<NonNullable<PublicTrustPackage['evidence']>> {
  const { leafIndex } = proof;
  const bytes = await entryAt(ctx, snapshot, leafIndex);
  const entry = proofEntrySchema.safeParse(parseStrict(bytes));
  if (
    !entry.success ||
    entry.data.proof_id !== proofId ||
    entry.data.aep_hash !== toHex(proof.aepHash) ||
    entry.data.proof_record_hash !== toHex(proof.proofRecordHash)
  ) {
    throw malformed(`leaf ${leafIndex} does not match the record that refers to it`);
  }
  return {
    log_entry: entry.data,
    leaf_index: leafIndex,
    tlog_proof: await tlogProofAt(ctx, snapshot, leafIndex, snapshot.generation),
    keys: await keysOf(ctx, snapshot),
  };
}

export type ViewName = 'history' | 'chain' | 'package';

// A Map, because a client chooses the suffix and could name an inherited member of an object.
const bySuffix = (views: Record<string, ViewName>): ReadonlyMap<string, ViewName> =>
  new Map(Object.entries(views));

export const VIEW_PATHS: Record<string, ReadonlyMap<string, ViewName>> = {
  proof: bySuffix({ history: 'history' }),
  certificate: bySuffix({ history: 'history', 'trust-chain': 'chain' }),
  passport: bySuffix({ history: 'history', 'trust-chain': 'chain' }),
  trust: bySuffix({ timeline: 'history', chain: 'chain', package: 'package' }),
};

export async function viewAnswer(
  ctx: PublicContext,
  snapshot: Snapshot,
  { route, requested }: { route: VerdictRoute; requested: string },
  resolved: Resolved | null,
  view: ViewName,
): Promise<Answer> {
  const { unmatched } = route;
  const response =
    resolved === null
      ? unresolvedResponse(unmatched === 'not-found' ? 'proof' : unmatched, requested)
      : lookupResponse(resolved);
  const document =
    view === 'package'
      ? await trustPackageOf(ctx, snapshot, response, resolved)
      : (view === 'chain' ? chainView : historyView)(response, proofIn(resolved));
  const body = utf8(JSON.stringify(document));
  return {
    status: 200,
    type: JSON_TYPE,
    cache: CACHE_VERDICT,
    body,
    // The ETag is a hash of the whole body, because a view depends on its record, the log and the keys.
    ...(resolved !== null && { etag: hashTag(body) }),
  };
}
