import { equalBytes } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { emptyRoot, HASH_BYTES, nodeHash } from './hash.js';

/**
 * An attacker may supply everything but the expected root. Verification checks index, sizes and
 * path, never throws, and rejects a path with an extra hash.
 */

export interface InclusionClaim {
  index: number;
  size: number;
  leafHash: Uint8Array;
  path: readonly Uint8Array[];
  root: Uint8Array;
}

/** Whether the leaf is at `index` in the tree with this size and root (RFC 9162 §2.1.3.2). */
export function verifyInclusion(sha256: Sha256, claim: InclusionClaim): boolean {
  const { index, size, path } = claim;
  if (!isSize(index) || !isSize(size) || index >= size) return false;
  if (!areHashes([claim.leafHash, claim.root, ...path])) return false;
  let node = index;
  let last = size - 1;
  let hash = claim.leafHash;
  for (const sibling of path) {
    if (last === 0) return false;
    if (node % 2 === 1 || node === last) {
      hash = nodeHash(sha256, sibling, hash);
      // A node without a right sibling moves up unhashed until it is a right child.
      while (node % 2 === 0 && node !== 0) {
        node /= 2;
        last = Math.floor(last / 2);
      }
    } else {
      hash = nodeHash(sha256, hash, sibling);
    }
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 && equalBytes(hash, claim.root);
}

export interface ConsistencyClaim {
  size1: number;
  size2: number;
  root1: Uint8Array;
  root2: Uint8Array;
  path: readonly Uint8Array[];
}

/**
 * Whether the second tree extends the first (RFC 9162 §2.1.4.2). Every tree extends the empty tree,
 * with an empty path.
 */
export function verifyConsistency(sha256: Sha256, claim: ConsistencyClaim): boolean {
  const { size1, size2, root1, root2, path } = claim;
  if (!isSize(size1) || !isSize(size2) || size1 > size2) return false;
  if (!areHashes([root1, root2, ...path])) return false;
  if (size1 === 0 && !equalBytes(root1, emptyRoot(sha256))) return false;
  if (size1 === size2) return path.length === 0 && equalBytes(root1, root2);
  if (size1 === 0) return path.length === 0;

  let node = size1 - 1;
  let last = size2 - 1;
  while (node % 2 === 1) {
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  // When the first tree is one perfect subtree of the second, its root starts both computations.
  const hashes = node === 0 ? [root1, ...path] : path;
  const first = hashes[0];
  if (first === undefined) return false;
  let hash1 = first;
  let hash2 = first;
  for (const hash of hashes.slice(1)) {
    if (last === 0) return false;
    if (node % 2 === 1 || node === last) {
      hash1 = nodeHash(sha256, hash, hash1);
      hash2 = nodeHash(sha256, hash, hash2);
      while (node % 2 === 0 && node !== 0) {
        node /= 2;
        last = Math.floor(last / 2);
      }
    } else {
      hash2 = nodeHash(sha256, hash2, hash);
    }
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 && equalBytes(hash1, root1) && equalBytes(hash2, root2);
}

function isSize(n: number): boolean {
  return Number.isSafeInteger(n) && n >= 0;
}

function areHashes(hashes: readonly Uint8Array[]): boolean {
  return hashes.every((hash) => hash.length === HASH_BYTES);
}
