import { ProtocolError } from '../errors.js';

/**
 * The shape of a tree of leaves, without any hash in it. Sizes are JS numbers up to 2^53−1, so
 * everything here divides instead of shifting.
 */

/** Leaves from `start` up to but not including `end`. */
export interface LeafRange {
  start: number;
  end: number;
}

/** The perfect subtree over leaves `index * 2^level` to `(index + 1) * 2^level`. */
export interface PerfectNode {
  level: number;
  index: number;
}

/** Largest power of two below `n`, for n ≥ 2: where RFC 6962 splits a tree of n leaves. */
export function splitPoint(n: number): number {
  let power = 1;
  while (power * 2 < n) power *= 2;
  return power;
}

/**
 * The ranges whose roots form the inclusion proof of leaf `index` in the tree of `size` leaves, in
 * proof order, from the leaf's sibling up (RFC 6962 §2.1.1). `out_of_range` unless index < size.
 */
export function inclusionRanges(index: number, size: number): LeafRange[] {
  requireSize(index);
  requireSize(size);
  if (index >= size)
    throw new ProtocolError('out_of_range', `leaf index ${index} is not below tree size ${size}`);
  const ranges: LeafRange[] = [];
  let start = 0;
  let end = size;
  while (end - start > 1) {
    const middle = start + splitPoint(end - start);
    if (index < middle) {
      ranges.push({ start: middle, end });
      end = middle;
    } else {
      ranges.push({ start, end: middle });
      start = middle;
    }
  }
  return ranges.reverse();
}

/**
 * The ranges whose roots form the consistency proof between trees of `size1` and `size2` leaves, in
 * proof order (RFC 6962 §2.1.2). Empty for equal sizes and for an empty first tree. `out_of_range`
 * when the first tree is larger.
 */
export function consistencyRanges(size1: number, size2: number): LeafRange[] {
  requireSize(size1);
  requireSize(size2);
  if (size1 > size2) {
    throw new ProtocolError(
      'out_of_range',
      `tree size ${size2} is below the first tree size ${size1}`,
    );
  }
  if (size1 === 0 || size1 === size2) return [];
  const ranges: LeafRange[] = [];
  let start = 0;
  let end = size2;
  while (end !== size1) {
    const middle = start + splitPoint(end - start);
    if (size1 <= middle) {
      ranges.push({ start: middle, end });
      end = middle;
    } else {
      ranges.push({ start, end: middle });
      start = middle;
    }
  }
  // A verifier that holds the old root needs no hash of a subtree equal to the old tree.
  if (start > 0) ranges.push({ start, end });
  return ranges.reverse();
}

/**
 * The perfect subtrees of the range [start, end), from left to right. The range must be a node of
 * some RFC 6962 tree; then folding the hashes from the right gives its root.
 */
export function perfectNodes({ start, end }: LeafRange): PerfectNode[] {
  const nodes: PerfectNode[] = [];
  let at = start;
  while (at < end) {
    let level = 0;
    let width = 1;
    while (at % (width * 2) === 0 && at + width * 2 <= end) {
      width *= 2;
      level++;
    }
    nodes.push({ level, index: at / width });
    at += width;
  }
  return nodes;
}

export function requireSize(n: number): void {
  if (!Number.isSafeInteger(n) || n < 0) {
    throw new ProtocolError('out_of_range', `${n} is not a log index or size`);
  }
}
