import { utf8 } from '#protocol/bytes';
import { packageMapKey, parsePackage, parseShare, shareMapKey } from '#protocol/evidence/shares';
import { isPackageId, isShareToken, timeOfId } from '#protocol/ids';
import {
  lookupNameOf,
  PACKAGE_KIND,
  SHARED,
  type LookupName,
  type VerdictRoute,
} from '#protocol/lookup-routes';
import { malformed } from '#protocol/snapshot/malformed';
import {
  awaitsVerdict,
  packageAnswer,
  proofAnswer,
  statusOf,
  type Match,
  type ProofFacts,
} from '#protocol/state/answers';
import { decodeProof, proofMapKey, shardOf } from '#protocol/state/record';
import { packageStatus, type ArtifactKind, type VerificationStatus } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { ByteCache } from '#runtime/process/byte-cache';
import type { Snapshot } from '../snapshot/snapshot.js';

/** The record and the history of a proof, as the map has them. The evidence of an answer proves both. */
export interface ResolvedProof extends ProofFacts {
  /** The bytes of the proof's events. */
  history: Uint8Array;
}

export interface Resolved {
  kind: ArtifactKind;
  matchedOn: LookupName;
  status: VerificationStatus;
  /** The lookup response, as JSON text. */
  body: string;
  /** The proof of the artifact, or the members of the package. */
  proofs: readonly [ResolvedProof, ...ResolvedProof[]];
}

/** Rendered packages by snapshot, cached because a package has up to 100 members. */
const packages = new WeakMap<Snapshot, ByteCache<Resolved>>();
const PACKAGES_BYTES = 16 * 1024 * 1024;
const MEMBER_BYTES = 2048;

/**
 * Must be called in `whenFetched`.
 * @throws ProtocolError for a damaged page or a contradiction
 */
export function resolve(
  snapshot: Snapshot,
  route: VerdictRoute,
  requested: string,
): Resolved | null {
  const field = lookupNameOf(requested);
  const kind = field && route.matches[field];
  if (!field || kind === undefined || kind === null) return null;
  const resolved =
    packages.get(snapshot)?.get(requested) ?? render(snapshot, kind, field, requested);
  if (resolved === null || !route.windowed) return resolved;
  const newest = Math.max(...resolved.proofs.map(({ proof }) => proof.leafIndex));
  return newest >= snapshot.log.lookup_from ? resolved : null;
}

/** Tolerated difference between the clocks of the database and of this server. */
const MAX_SKEW_MS = 5_000;

/**
 * Whether an identifier that does not resolve may resolve later: a proof that it leads to awaits a verdict, or the
 * identifier is so new that the snapshot can lack it within the merge delay. False for an identifier with a time in
 * the future, because clients would retry a made-up identifier forever. Must be called in `whenFetched`.
 */
export function mayResolveLater(
  snapshot: Snapshot,
  { route, requested }: { route: VerdictRoute; requested: string },
  now: number,
): boolean {
  const { entry, issuedAt } = snapshot;
  const field = lookupNameOf(requested);
  if (field === null || route.matches[field] === undefined) return false;
  const madeAt = timeOfId(requested) ?? -Infinity;
  const isYoung = madeAt > issuedAt - 1000 * entry.max_merge_delay;
  if (isYoung && madeAt <= now + MAX_SKEW_MS) return true;
  return proofIdsOf(snapshot, requested).some((proofId) => {
    const proof = recordOf(snapshot, proofId);
    return proof !== null && awaitsVerdict(proof);
  });
}

function proofIdsOf(snapshot: Snapshot, id: string): readonly string[] {
  if (isPackageId(id)) return findMembers(snapshot, id) ?? [];
  if (!isShareToken(id)) return [id.slice(-32)];
  const share = findShare(snapshot, id);
  return share === null ? [] : proofIdsOf(snapshot, share.id);
}

function findShare(snapshot: Snapshot, token: string) {
  const hash = nativeSha256(utf8(token));
  const value = snapshot.find({ map: 'shares_root', key: shareMapKey(hash) });
  return value === null ? null : parseShare(value, hash);
}

function findMembers(snapshot: Snapshot, packageId: string): readonly string[] | null {
  const value = snapshot.find({ map: 'shares_root', key: packageMapKey(packageId) });
  return value === null ? null : parsePackage(value, packageId).members;
}

function render(
  snapshot: Snapshot,
  named: ArtifactKind | typeof SHARED,
  matchedOn: LookupName,
  requested: string,
): Resolved | null {
  if (named !== SHARED)
    return renderArtifact(snapshot, { kind: named, requested, matchedOn }, requested);
  const share = findShare(snapshot, requested);
  if (share === null) return null;
  const { artifact_kind, id } = share;
  const kind = artifact_kind === 'package' ? PACKAGE_KIND : artifact_kind;
  return renderArtifact(snapshot, { kind, requested, matchedOn }, id);
}

type LookupMatch = Match & Pick<Resolved, 'matchedOn'>;

/** @param id a package id, or any id of a proof */
function renderArtifact(snapshot: Snapshot, match: LookupMatch, id: string): Resolved | null {
  const { kind, matchedOn } = match;
  if (isPackageId(id)) return renderPackage(snapshot, match, id);
  const proof = proofOf(snapshot, id.slice(-32));
  if (proof === null) return null;
  const status = statusOf(kind, proof);
  const body = proofAnswer(match, proof, status);
  return body === null ? null : { kind, matchedOn, status, body, proofs: [proof] };
}

function renderPackage(snapshot: Snapshot, match: LookupMatch, packageId: string): Resolved | null {
  const proofIds = findMembers(snapshot, packageId);
  if (proofIds === null) return null;
  const members: ResolvedProof[] = [];
  for (const proofId of proofIds) {
    const member = proofOf(snapshot, proofId);
    if (member === null) return null;
    members.push(ownedCopy(member));
  }
  const [first, ...others] = members as [ResolvedProof, ...ResolvedProof[]];
  const { kind, matchedOn, requested } = match;
  const body = packageAnswer(nativeSha256, match, packageId, members);
  const status = packageStatus(members.map((member) => statusOf('trust', member)));
  const resolved: Resolved = { kind, matchedOn, status, body, proofs: [first, ...others] };
  let kept = packages.get(snapshot);
  if (kept === undefined) packages.set(snapshot, (kept = new ByteCache(PACKAGES_BYTES)));
  kept.put(requested, resolved, body.length + members.length * MEMBER_BYTES);
  return resolved;
}

/** A cached package keeps its members. Without a copy, each would keep the whole page of its record in memory. */
function ownedCopy({ proof, history, ...member }: ResolvedProof): ResolvedProof {
  const aepHash = copyOf(proof.aepHash);
  const proofRecordHash = copyOf(proof.proofRecordHash);
  return { ...member, history: copyOf(history), proof: { ...proof, aepHash, proofRecordHash } };
}

const copyOf = (bytes: Uint8Array): Uint8Array => new Uint8Array(bytes);

function proofOf(snapshot: Snapshot, proofId: string): ResolvedProof | null {
  const proof = recordOf(snapshot, proofId);
  return proof === null || awaitsVerdict(proof) ? null : proof;
}

function recordOf(snapshot: Snapshot, proofId: string): ResolvedProof | null {
  const value = snapshot.find({ map: 'map_root', key: proofMapKey(proofId) });
  if (value === null) return null;
  const shard = shardOf(proofId);
  const proof = decodeProof(value.record);
  const log = snapshot.logOf(shard);
  if (proof.leafIndex >= log.size) throw malformed(`${proofId} is not in the snapshot's log`);
  const key = proof.keyIndex === null ? null : snapshot.aepKey(shard, proof.keyIndex);
  return { proofId, proof, key, log, history: value.history };
}
