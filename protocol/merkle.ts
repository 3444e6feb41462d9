import { equalBytes } from './bytes.js';
import { ProtocolError } from './errors.js';
import type { Sha256 } from './hash.js';

export const HASH_BYTES = 32;

// Hashing is synchronous and keeps no input, so all calls share one buffer: an allocation for each
// call would cost as much as the hash.
const scratch = new Uint8Array(1024);
const node = scratch.subarray(0, 1 + 2 * HASH_BYTES);

export function leafHash(sha256: Sha256, entry: Uint8Array): Uint8Array {
  const length = 1 + entry.length;
  const input = length <= scratch.length ? scratch.subarray(0, length) : new Uint8Array(length);
  input[0] = 0;
  input.set(entry, 1);
  return sha256(input);
}

export function nodeHash(sha256: Sha256, left: Uint8Array, right: Uint8Array): Uint8Array {
  node[0] = 1;
  node.set(left, 1);
  node.set(right, 1 + HASH_BYTES);
  return sha256(node);
}

/** Root of the empty tree, RFC 6962 §2.1: SHA-256 of the empty string. */
export function emptyRoot(sha256: Sha256): Uint8Array {
  return sha256(new Uint8Array(0));
}

/** Root over adjacent subtrees from left to right, none taller than its predecessor. */
export function foldRight(sha256: Sha256, hashes: readonly Uint8Array[]): Uint8Array {
  if (hashes.length === 0) return emptyRoot(sha256);
  let root = hashes[hashes.length - 1]!;
  for (let i = hashes.length - 2; i >= 0; i--) root = nodeHash(sha256, hashes[i]!, root);
  return root;
}

/**
 * The shape of a tree, without hashes. Sizes are JS numbers up to 2^53−1, so this code divides
 * instead of shifting.
 */

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
  return descend(index, size, ({ start, end }) => end - start === 1).siblings;
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
  const { node, siblings } = descend(size1 - 1, size2, ({ end }) => end === size1);
  // A verifier that holds the old root needs no hash of a subtree equal to the old tree.
  return node.start > 0 ? [node, ...siblings] : siblings;
}

/** Descends from the root towards leaf `index`; the siblings are in the order from the node up. */
function descend(index: number, size: number, isEnd: (node: LeafRange) => boolean) {
  const siblings: LeafRange[] = [];
  let node: LeafRange = { start: 0, end: size };
  while (!isEnd(node)) {
    const middle = node.start + splitPoint(node.end - node.start);
    const left = { start: node.start, end: middle };
    const right = { start: middle, end: node.end };
    siblings.push(index < middle ? right : left);
    node = index < middle ? left : right;
  }
  return { node, siblings: siblings.reverse() };
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
  if (!isSize(n)) throw new ProtocolError('out_of_range', `${n} is not a log index or size`);
}

/**
 * An attacker may supply everything but the expected root. So verification checks index, sizes and
 * path, rejects a path with an extra hash, and never throws.
 */

export interface InclusionClaim {
  index: number;
  size: number;
  leafHash: Uint8Array;
  path: readonly Uint8Array[];
  root: Uint8Array;
}

/** Whether the leaf is at `index` in the tree with this size and root (RFC 6962 §2.1.1). */
export function verifyInclusion(
  sha256: Sha256,
  { index, size, leafHash, path, root }: InclusionClaim,
): boolean {
  if (!isSize(index) || !isSize(size) || index >= size) return false;
  if (!areHashes([leafHash, root, ...path])) return false;
  const siblings = inclusionRanges(index, size);
  if (path.length !== siblings.length) return false;
  const found = path.reduce(
    (hash, sibling, i) =>
      siblings[i]!.start < index
        ? nodeHash(sha256, sibling, hash)
        : nodeHash(sha256, hash, sibling),
    leafHash,
  );
  return equalBytes(found, root);
}

export interface ConsistencyClaim {
  size1: number;
  size2: number;
  root1: Uint8Array;
  root2: Uint8Array;
  path: readonly Uint8Array[];
}

/**
 * Whether the second tree extends the first (RFC 6962 §2.1.2). Every tree extends the empty tree,
 * with an empty path.
 */
export function verifyConsistency(sha256: Sha256, claim: ConsistencyClaim): boolean {
  const { size1, size2, root1, root2, path } = claim;
  if (!isSize(size1) || !isSize(size2) || size1 > size2) return false;
  if (!areHashes([root1, root2, ...path])) return false;
  if (size1 === 0 && !equalBytes(root1, emptyRoot(sha256))) return false;
  if (size1 === size2) return path.length === 0 && equalBytes(root1, root2);
  if (size1 === 0) return path.length === 0;

  const { node, siblings } = descend(size1 - 1, size2, ({ end }) => end === size1);
  // When the first tree is one perfect subtree of the second, its root starts both computations.
  const [first, ...others] = node.start > 0 ? path : [root1, ...path];
  if (first === undefined || others.length !== siblings.length) return false;
  let [hash1, hash2] = [first, first];
  others.forEach((other, i) => {
    if (siblings[i]!.start < node.start) {
      hash1 = nodeHash(sha256, other, hash1);
      hash2 = nodeHash(sha256, other, hash2);
    } else {
      hash2 = nodeHash(sha256, hash2, other);
    }
  });
  return equalBytes(hash1, root1) && equalBytes(hash2, root2);
}

function isSize(n: number): boolean {
  return Number.isSafeInteger(n) && n >= 0;
}

function areHashes(hashes: readonly Uint8Array[]): boolean {
  return hashes.every((hash) => hash.length === HASH_BYTES);
}

/** The state of a growing tree: one hash for every 1 in the binary form of its size. */
export interface CompactRangeState {
  size: number;
  /** Roots of the perfect subtrees from left to right, the largest first. */
  hashes: readonly Uint8Array[];
}

/** A growing tree that keeps O(log n) hashes; appending costs one node hash on average. */
export class CompactRange {
  #size: number;
  readonly #hashes: Uint8Array[];

  constructor(
    private readonly sha256: Sha256,
    state: CompactRangeState = { size: 0, hashes: [] },
  ) {
    requireSize(state.size);
    if (state.hashes.length !== ones(state.size) || !areHashes(state.hashes)) {
      const message = `the number of hashes does not match tree size ${state.size}`;
      throw new ProtocolError('out_of_range', message);
    }
    this.#size = state.size;
    this.#hashes = [...state.hashes];
  }

  get size(): number {
    return this.#size;
  }

  get hashes(): readonly Uint8Array[] {
    return [...this.#hashes];
  }

  append(leafHash: Uint8Array): void {
    let hash = leafHash;
    for (let n = this.#size; n % 2 === 1; n = (n - 1) / 2) {
      hash = nodeHash(this.sha256, this.#hashes.pop()!, hash);
    }
    this.#hashes.push(hash);
    this.#size++;
  }

  root(): Uint8Array {
    return foldRight(this.sha256, this.#hashes);
  }
}

function ones(n: number): number {
  let count = 0;
  for (let rest = n; rest > 0; rest = Math.floor(rest / 2)) count += rest % 2;
  return count;
}
