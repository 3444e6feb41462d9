import { ProtocolError } from '#protocol/errors';
import { isPackageId, isShareToken, resolveIdentifier, type IdField } from '#protocol/ids';
import { runLookup, type Lookup, type SegmentRead } from '#protocol/snapshot/find';
import { recordBody, type RecordBody } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';
import type { PublicContext } from '../operation.js';
import { mayHoldToken } from '../http/answer.js';
import type { FoundRecord, Snapshot } from '../snapshot/snapshot.js';

/** Stands for the kind of the artifact that a share token shares. */
export const SHARED = 'shared';

/** Packages are rendered and reported as trust artifacts. */
export const PACKAGE_KIND: ArtifactKind = 'trust';

/** The kinds of id that a lookup matches. */
export type LookupName = IdField | 'share_token' | 'package_id';

/** The ids that a route matches and its response when none matches. */
export interface VerdictRoute {
  /** The kind of artifact that each matched id resolves to. */
  matches: Partial<Record<LookupName, ArtifactKind | typeof SHARED>>;
  /** Whether the route covers recent proofs only. */
  windowed: boolean;
  /** The response without a match: the not-found record, or the unresolved body of a kind. */
  unmatched: 'not-found' | ArtifactKind;
  /** Treats every identifier as a share token. */
  isSecret?: true;
}

/** Whether the response may concern a share token: it then gets no ETag and must not be cached. */
export function isSecret(route: VerdictRoute, requested: string): boolean {
  return route.isSecret === true || mayHoldToken(requested);
}

export interface Resolved {
  kind: ArtifactKind;
  matchedOn: LookupName;
  record: FoundRecord;
  /** The record's response for the resolved kind. */
  body: RecordBody;
}

/**
 * Resolves `requested` on a route, or returns null. On a failed verification it drops only the
 * damaged piece: the next lookup reads repaired content, and the cache stays warm.
 */
export async function resolve(
  { source, recentLookupLimit }: PublicContext,
  snapshot: Snapshot,
  route: VerdictRoute,
  requested: string,
): Promise<Resolved | null> {
  const identified = identify(requested);
  if (identified === null) return null;
  const { manifest } = snapshot.opened;
  const window = Math.min(manifest.window, recentLookupLimit);
  const newerThan = route.windowed ? Math.max(0, manifest.proofs - window) : 0;
  let last: SegmentRead | null = null;
  try {
    const lookup = find(snapshot, route, identified, newerThan);
    return await runLookup(lookup, (wanted) => source.read((last = wanted)));
  } catch (error) {
    if (error instanceof ProtocolError && last !== null) source.forget(last);
    throw error;
  }
}

interface Identified {
  field: LookupName;
  /** The UUID as hex, or the whole share token. */
  key: string;
}

/** Classifies an id by its syntax; null for any other text. */
export function identify(text: string): Identified | null {
  const ofProof = resolveIdentifier(text);
  if (ofProof !== null) return { field: ofProof.matched_on, key: ofProof.proof_id };
  if (isShareToken(text)) return { field: 'share_token', key: text };
  if (isPackageId(text)) return { field: 'package_id', key: text.slice('pkg_'.length) };
  return null;
}

function* find(
  snapshot: Snapshot,
  route: VerdictRoute,
  { field: matchedOn, key }: Identified,
  newerThan: number,
): Lookup<Resolved | null> {
  const kind = route.matches[matchedOn];
  if (kind === undefined) return null;
  if (kind !== SHARED) {
    const record = yield* matchedOn === 'package_id'
      ? snapshot.package(key, newerThan)
      : snapshot.proof(key, newerThan);
    return resolved(kind, matchedOn, record);
  }
  const share = yield* snapshot.share(key);
  if (share === null || share.artifact_kind === null) return null;
  if (share.artifact_kind !== 'package') {
    const record = yield* snapshot.proof(share.proof_id, newerThan);
    return resolved(share.artifact_kind, matchedOn, record);
  }
  const uuid = identify(share.package_id)!.key;
  return resolved(PACKAGE_KIND, matchedOn, yield* snapshot.package(uuid, newerThan));
}

function resolved(
  kind: ArtifactKind,
  matchedOn: LookupName,
  record: FoundRecord | null,
): Resolved | null {
  if (record === null) return null;
  const body = recordBody(record.bytes, record.id, kind);
  return body && { kind, matchedOn, record, body };
}
