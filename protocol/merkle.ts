/** The Merkle tree of RFC 6962 §2.1 over SHA-256: hashes are 32 bytes, sizes and indexes numbers. */
export { CompactRange, type CompactRangeState } from './merkle/compact-range.js';
export { emptyRoot, HASH_BYTES, leafHash, nodeHash } from './merkle/hash.js';
export {
  verifyConsistency,
  verifyInclusion,
  type ConsistencyClaim,
  type InclusionClaim,
} from './merkle/proofs.js';
export { consistencyRanges, inclusionRanges, type LeafRange } from './merkle/ranges.js';
export { consistencyPath, inclusionPath, rootOf } from './merkle/tree.js';
