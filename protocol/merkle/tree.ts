import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { emptyRoot, nodeHash } from './hash.js';
import { consistencyRanges, inclusionRanges, splitPoint, type LeafRange } from './ranges.js';

/** Trees held in memory as their leaf hashes; see tiles for trees that are not. */

/** Root of a tree (RFC 6962 §2.1), optionally of a range of its leaves. */
export function rootOf(
  sha256: Sha256,
  leafHashes: readonly Uint8Array[],
  range: LeafRange = { start: 0, end: leafHashes.length },
): Uint8Array {
  const { start, end } = range;
  if (end === start) return emptyRoot(sha256);
  if (end - start === 1) return leafHashes[start]!;
  const middle = start + splitPoint(end - start);
  return nodeHash(
    sha256,
    rootOf(sha256, leafHashes, { start, end: middle }),
    rootOf(sha256, leafHashes, { start: middle, end }),
  );
}

/**
 * Inclusion proof of leaf `index` in the tree of the first `size` leaves (RFC 6962 §2.1.1), from
 * the leaf's sibling up to the child of the root.
 */
export function inclusionPath(
  sha256: Sha256,
  leafHashes: readonly Uint8Array[],
  index: number,
  size: number = leafHashes.length,
): Uint8Array[] {
  requireLeaves(leafHashes, size);
  return inclusionRanges(index, size).map((range) => rootOf(sha256, leafHashes, range));
}

/** Proof that the tree of `size2` leaves extends the tree of `size1` (RFC 6962 §2.1.2). */
export function consistencyPath(
  sha256: Sha256,
  leafHashes: readonly Uint8Array[],
  size1: number,
  size2: number = leafHashes.length,
): Uint8Array[] {
  requireLeaves(leafHashes, size2);
  return consistencyRanges(size1, size2).map((range) => rootOf(sha256, leafHashes, range));
}

function requireLeaves(leafHashes: readonly Uint8Array[], size: number): void {
  if (size > leafHashes.length) {
    throw new ProtocolError(
      'out_of_range',
      `${leafHashes.length} leaves are too few for tree size ${size}`,
    );
  }
}
