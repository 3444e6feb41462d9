import { utf8 } from '#protocol/bytes';
import { packageMapKey, parsePackage, parseShare, shareMapKey } from '#protocol/evidence/shares';
import { isPackageId, timeOfId } from '#protocol/ids';
import {
  lookupNameOf,
  PACKAGE_KIND,
  SHARED,
  type LookupName,
  type VerdictRoute,
} from '#protocol/lookup-routes';
import { malformed } from '#protocol/snapshot/location';
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

/** The identifier leads to a proof that awaits its first verdict, so the identifier does not resolve yet. */
const PENDING = 'pending';
type Found = Resolved | typeof PENDING | null;

export interface Lookup {
  resolved: Resolved | null;
  /**
   * Whether an identifier that does not resolve may resolve later: a proof that it leads to awaits a verdict, or the
   * identifier is so new that the snapshot can lack it within the merge delay.
   */
  isExpected: boolean;
}

/**
 * Looks an identifier up. Must be called in `whenFetched`.
 * @throws ProtocolError for a damaged page or a contradiction
 */
export function lookUp(
  snapshot: Snapshot,
  { route, requested }: { route: VerdictRoute; requested: string },
  now: number,
): Lookup {
  const field = lookupNameOf(requested);
  const kind = field === null ? undefined : route.matches[field];
  if (field === null || kind === undefined) return { resolved: null, isExpected: false };
  const found = packages.get(snapshot)?.get(requested) ?? render(snapshot, kind, field, requested);
  if (found === PENDING) return { resolved: null, isExpected: true };
  const resolved = found !== null && route.windowed && !isRecent(snapshot, found) ? null : found;
  return { resolved, isExpected: resolved === null && isNew(snapshot, requested, now) };
}

function isRecent(snapshot: Snapshot, { proofs }: Resolved): boolean {
  const newest = Math.max(...proofs.map(({ proof }) => proof.leafIndex));
  return newest >= snapshot.log.lookup_from;
}

/** Tolerated difference between the clocks of the database and of this server. */
const MAX_SKEW_MS = 5_000;

/** Whether the snapshot may lack a new id. False for a time in the future: clients would retry a made-up id forever. */
function isNew({ entry, issuedAt }: Snapshot, requested: string, now: number): boolean {
  const madeAt = timeOfId(requested) ?? -Infinity;
  return madeAt > issuedAt - 1000 * entry.max_merge_delay && madeAt <= now + MAX_SKEW_MS;
}

function render(
  snapshot: Snapshot,
  named: ArtifactKind | typeof SHARED,
  matchedOn: LookupName,
  requested: string,
): Found {
  if (named !== SHARED)
    return renderArtifact(snapshot, { kind: named, requested, matchedOn }, requested);
  const tokenHash = nativeSha256(utf8(requested));
  const value = snapshot.find({ map: 'shares_root', key: shareMapKey(tokenHash) });
  if (value === null) return null;
  const { artifact_kind, id } = parseShare(value, tokenHash);
  const kind = artifact_kind === 'package' ? PACKAGE_KIND : artifact_kind;
  return renderArtifact(snapshot, { kind, requested, matchedOn }, id);
}

type LookupMatch = Match & Pick<Resolved, 'matchedOn'>;

/** @param id a package id, or any id of a proof */
function renderArtifact(snapshot: Snapshot, match: LookupMatch, id: string): Found {
  const { kind, matchedOn } = match;
  if (isPackageId(id)) return renderPackage(snapshot, match, id);
  const proof = recordOf(snapshot, id.slice(-32));
  if (proof === null) return null;
  if (awaitsVerdict(proof)) return PENDING;
  const status = statusOf(kind, proof);
  const body = proofAnswer(match, proof, status);
  return body === null ? null : { kind, matchedOn, status, body, proofs: [proof] };
}

function renderPackage(snapshot: Snapshot, match: LookupMatch, packageId: string): Found {
  const value = snapshot.find({ map: 'shares_root', key: packageMapKey(packageId) });
  if (value === null) return null;
  const { members: proofIds } = parsePackage(value, packageId);
  const members: ResolvedProof[] = [];
  for (const proofId of proofIds) {
    const member = recordOf(snapshot, proofId);
    if (member !== null) members.push(ownedCopy(member));
  }
  if (members.some(awaitsVerdict)) return PENDING;
  if (members.length < proofIds.length) return null;
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
