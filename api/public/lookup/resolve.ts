import type { Lookup } from '#protocol/snapshot/find';
import { recordBody, type RecordBody } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';
import type { PublicContext } from '../context.js';
import { runOnSource } from '../snapshot/run.js';
import type { FoundRecord, Snapshot } from '../snapshot/snapshot.js';
import { identify, type LookupName } from './identify.js';

/** Stands where the kind does for tokens: they show an artifact of whatever kind they were made for. */
export const SHARED = 'shared';

/** What a package is rendered and answered as. */
export const PACKAGE_KIND: ArtifactKind = 'trust';

/** What a route looks up: which ids it matches, what they stand for, and what it says of none. */
export interface VerdictRoute {
  /** The kind of artifact that each matched id resolves to. */
  matches: Partial<Record<LookupName, ArtifactKind | typeof SHARED>>;
  /** Only among the latest proofs. */
  windowed: boolean;
  /** Without a match: the not-found record, or the unresolved body of a kind. */
  unmatched: 'not-found' | ArtifactKind;
  /** Whatever is asked here is taken for a share token. */
  isSecret?: true;
}

/** What an identifier leads to. */
export interface Resolved {
  kind: ArtifactKind;
  matchedOn: LookupName;
  record: FoundRecord;
  /** The record's text for this kind. */
  body: RecordBody;
}

/**
 * What `requested` leads to on a route, or null when it does not resolve there. A promise only where
 * the snapshot is not on this machine; throws whatever reading throws.
 */
export function resolve(
  ctx: PublicContext,
  snapshot: Snapshot,
  route: VerdictRoute,
  requested: string,
): Resolved | null | Promise<Resolved | null> {
  const { manifest } = snapshot.opened;
  const window = Math.min(manifest.window, ctx.recentLookupLimit);
  const newerThan = route.windowed ? Math.max(0, manifest.proofs - window) : 0;
  return runOnSource(ctx.source, find(snapshot, route, requested, newerThan));
}

function* find(
  snapshot: Snapshot,
  route: VerdictRoute,
  requested: string,
  newerThan: number,
): Lookup<Resolved | null> {
  const asked = identify(requested);
  if (asked === null) return null;
  const { field: matchedOn, key } = asked;
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
