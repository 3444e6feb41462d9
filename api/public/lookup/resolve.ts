import type { Lookup } from '#protocol/snapshot/find';
import { recordBody, type RecordBody } from '#protocol/snapshot/record';
import type { ArtifactKind } from '#protocol/status';
import type { PublicContext } from '../context.js';
import { runOnSource } from '../snapshot/run.js';
import type { FoundRecord, Snapshot } from '../snapshot/snapshot.js';
import { identify, type LookupName } from './identify.js';

/** The kind of a share token: that of the artifact it shares. */
export const SHARED = 'shared';

/** Packages are rendered and reported as trust artifacts. */
export const PACKAGE_KIND: ArtifactKind = 'trust';

/** The ids that a route matches and its response when none matches. */
export interface VerdictRoute {
  /** The kind of artifact that each matched id resolves to. */
  matches: Partial<Record<LookupName, ArtifactKind | typeof SHARED>>;
  /** Covers recent proofs only. */
  windowed: boolean;
  /** The response without a match: the not-found record, or the unresolved body of a kind. */
  unmatched: 'not-found' | ArtifactKind;
  /** Treats every identifier as a share token. */
  isSecret?: true;
}

export interface Resolved {
  kind: ArtifactKind;
  matchedOn: LookupName;
  record: FoundRecord;
  /** The record's text for this kind. */
  body: RecordBody;
}

/** Resolves `requested` on a route, or returns null. Asynchronous only when the snapshot is remote. */
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
  const identified = identify(requested);
  if (identified === null) return null;
  const { field: matchedOn, key } = identified;
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
