import { fromHex, toHex, utf8 } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { isPackageId, isShareToken, resolveIdentifier, type ProofId } from '../ids.js';
import { push, type MapValue } from '../map/page.js';
import {
  aepKeyMapKey,
  decodeAepKey,
  decodeHistoryOf,
  decodeProof,
  proofMapKey,
  shardOf,
  type AepKeyLife,
  type PublicProof,
  type RecordedEvent,
} from '../state/record.js';
import {
  packageMapKey,
  parsePackage,
  parseShare,
  shareMapKey,
  type PackageRecord,
  type ShareRecord,
} from './shares.js';

/** A lookup in one of the two maps of a snapshot. */
export interface MapQuery {
  map: 'map_root' | 'shares_root';
  key: Uint8Array;
}

/** The records behind an answer; null for a key that the map does not have. */
export interface FoundRecords {
  /** The share of a token; undefined unless a token was looked up. */
  share: ShareRecord | null | undefined;
  /** Undefined unless a package was looked up, by its id or a share token. */
  package: PackageRecord | null | undefined;
  /** Each proof that was looked up, in order. */
  proofs: ReadonlyMap<ProofId, FoundProof | null>;
}

export interface FoundProof {
  proof: PublicProof;
  history: RecordedEvent[];
  /** The leaf indexes at which signatures of the signing key count; null if the key was not activated. */
  key: AepKeyLife | null;
}

/**
 * The lookups that prove the answer about an identifier, in the order of the evidence. The keys of later lookups depend
 * on the values of earlier lookups, so both the server and the reader run this generator.
 *
 * @param identifier the identifier or share token as requested
 * @throws ProtocolError `malformed_record`
 */
export function* lookupsOf(
  sha256: Sha256,
  identifier: string,
): Generator<MapQuery, FoundRecords, MapValue | null> {
  let target: string | undefined = identifier;
  let share: FoundRecords['share'];
  if (isShareToken(identifier)) {
    const hash = sha256(utf8(identifier));
    const value = yield { map: 'shares_root', key: shareMapKey(hash) };
    share = value && parseShare(value, hash);
    target = share?.id;
  }
  let found: FoundRecords['package'];
  let ids: readonly ProofId[] = [];
  if (target !== undefined && isPackageId(target)) {
    const value = yield { map: 'shares_root', key: packageMapKey(target) };
    found = value && parsePackage(value, target);
    ids = found?.members ?? [];
  } else {
    const named = target === undefined ? null : resolveIdentifier(target);
    if (named !== null) ids = [named.proof_id];
  }
  return { share, package: found, proofs: yield* proofsOf(ids) };
}

function* proofsOf(
  ids: readonly ProofId[],
): Generator<MapQuery, FoundRecords['proofs'], MapValue | null> {
  const proofs = new Map<ProofId, FoundProof | null>();
  /** The proofs by the map key of their signing key, in hex. */
  const signedBy = new Map<string, FoundProof[]>();
  for (const id of ids) {
    const value = yield { map: 'map_root', key: proofMapKey(id) };
    if (value === null) {
      proofs.set(id, null);
      continue;
    }
    const proof = decodeProof(value.record);
    const found = { proof, history: decodeHistoryOf(proof, value.history), key: null };
    proofs.set(id, found);
    if (proof.keyIndex === null) continue;
    push(signedBy, toHex(aepKeyMapKey(shardOf(id), proof.keyIndex)), found);
  }
  for (const [key, signed] of [...signedBy].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const value = yield { map: 'map_root', key: fromHex(key) };
    // Without this record the answer could hide a compromise of the key.
    if (value === null || value.history.length > 0) {
      throw new ProtocolError('malformed_record', 'the map lacks the record of a signing key');
    }
    const life = decodeAepKey(value.record);
    for (const found of signed) found.key = life;
  }
  return proofs;
}
