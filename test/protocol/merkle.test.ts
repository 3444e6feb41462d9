import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { concat, toHex } from '#protocol/bytes';
import { nobleSha256 } from '#protocol/hash';
import {
  CompactRange,
  leafHash,
  nodeHash,
  verifyConsistency,
  verifyInclusion,
} from '#protocol/merkle';
import { leafHashes, sha256, withFlippedBit } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import { consistencyPath, inclusionPath, rootOf } from '../fixtures/tree.js';

const MAX = 300;
const leaves = leafHashes(MAX);

const size = fc.integer({ min: 1, max: MAX });
const indexAndSize = size.chain((n) => fc.tuple(fc.nat(n - 1), fc.constant(n)));

it.each([0, 1, 300, 1022, 1023, 1024, 65_535])(
  'hashes > cover all %i bytes of a leaf',
  (length) => {
    const entry = new Uint8Array(length).fill(7);
    const [left, right] = [leaves[0]!, leaves[1]!];
    const expected = (domain: number, ...parts: Uint8Array[]): string =>
      toHex(nobleSha256(concat(Uint8Array.of(domain), ...parts)));
    // Several calls in sequence, because all calls share one input buffer.
    expect(toHex(nodeHash(nobleSha256, left, right))).toBe(expected(1, left, right));
    expect(toHex(leafHash(nobleSha256, entry))).toBe(expected(0, entry));
    expect(toHex(nodeHash(nobleSha256, right, left))).toBe(expected(1, right, left));
  },
);

describe('inclusion proofs', () => {
  it('verify at their own position and at no other', () => {
    fc.assert(
      fc.property(
        indexAndSize,
        fc.nat(MAX),
        fc.nat(MAX + 50),
        ([index, n], otherIndex, otherSize) => {
          const path = inclusionPath(sha256, leaves, index, n);
          const root = rootOf(sha256, leaves, { start: 0, end: n });
          const claim = { index, size: n, leafHash: leaves[index]!, path, root };
          expect(verifyInclusion(sha256, claim)).toBe(true);
          if (otherIndex !== index) {
            expect(verifyInclusion(sha256, { ...claim, index: otherIndex })).toBe(false);
            expect(verifyInclusion(sha256, { ...claim, leafHash: leaves[otherIndex % MAX]! })).toBe(
              otherIndex % MAX === index,
            );
          }
          // A tree of a different size can have a path of equal length, but not this root.
          if (otherSize !== n && otherSize <= MAX) {
            const otherRoot = rootOf(sha256, leaves, { start: 0, end: otherSize });
            expect(verifyInclusion(sha256, { ...claim, size: otherSize, root: otherRoot })).toBe(
              false,
            );
          }
        },
      ),
    );
  });

  it('are rejected with any bit flipped, or any hash omitted, doubled or moved', () => {
    fc.assert(
      fc.property(indexAndSize, fc.nat(), fc.nat(255), ([index, n], at, bit) => {
        const path = inclusionPath(sha256, leaves, index, n);
        const root = rootOf(sha256, leaves, { start: 0, end: n });
        const claim = { index, size: n, leafHash: leaves[index]!, path, root };
        const refuses = (change: Partial<typeof claim>) => {
          expect(verifyInclusion(sha256, { ...claim, ...change })).toBe(false);
        };
        refuses({ root: withFlippedBit(root, bit) });
        refuses({ leafHash: withFlippedBit(claim.leafHash, bit) });
        refuses({ path: [...path, root] });
        refuses({ path: [leaves[0]!, ...path] });
        refuses({ root: root.subarray(1) });
        if (path.length === 0) return;
        const i = at % path.length;
        refuses({ path: path.with(i, withFlippedBit(path[i]!, bit)) });
        refuses({ path: path.toSpliced(i, 1) });
        refuses({ path: path.toSpliced(i, 0, path[i]!) });
        refuses({ path: path.with(i, path[i]!.subarray(1)) });
        if (path.length > 1) refuses({ path: path.toReversed() });
      }),
    );
  });

  it.each([
    [0, 0],
    [1, 1],
    [-1, 1],
    [0.5, 1],
    [0, 2 ** 53],
    [Number.NaN, 1],
  ])('cannot be computed for leaf %d of a tree of %d', (index, n) => {
    const claim = { index, size: n, leafHash: leaves[0]!, path: [], root: leaves[0]! };
    expect(verifyInclusion(sha256, claim)).toBe(false);
    expect(refusal(() => inclusionPath(sha256, leaves, index, n)).code).toBe('out_of_range');
  });

  it('are rejected unless they have one hash for each level above the leaf', () => {
    const [a, b] = [leaves[0]!, leaves[1]!];
    const claim = { index: 0, size: 2, leafHash: a, path: [b], root: nodeHash(sha256, a, b) };
    expect(verifyInclusion(sha256, claim)).toBe(true);
    expect(verifyInclusion(sha256, { ...claim, size: 4 })).toBe(false);
    const alone = { index: 0, size: 1, leafHash: a, path: [b] };
    for (const root of [nodeHash(sha256, a, b), nodeHash(sha256, b, a)]) {
      expect(verifyInclusion(sha256, { ...alone, root })).toBe(false);
    }
  });

  it('support tree sizes beyond 32 bits', () => {
    // The last leaf of a tree of 2^33 + 1 leaves is the sibling of one perfect subtree.
    const big = 2 ** 33 + 1;
    const [left, leaf] = [leaves[0]!, leaves[1]!];
    const root = nodeHash(sha256, left, leaf);
    const claim = { index: big - 1, size: big, leafHash: leaf, path: [left], root };
    expect(verifyInclusion(sha256, claim)).toBe(true);
    expect(verifyInclusion(sha256, { ...claim, index: 0 })).toBe(false);
    expect(
      verifyConsistency(sha256, {
        size1: big - 1,
        size2: big,
        root1: left,
        root2: root,
        path: [leaf],
      }),
    ).toBe(true);
  });
});

it('consistency proofs > are rejected with any bit flipped, any hash omitted or added, or other sizes or roots', () => {
  fc.assert(
    fc.property(
      size.chain((n) => fc.tuple(fc.nat(n), fc.constant(n))),
      fc.nat(),
      fc.nat(255),
      fc.nat(MAX),
      ([size1, size2], at, bit, other) => {
        const root1 = rootOf(sha256, leaves, { start: 0, end: size1 });
        const root2 = rootOf(sha256, leaves, { start: 0, end: size2 });
        const path = consistencyPath(sha256, leaves, size1, size2);
        const claim = { size1, size2, root1, root2, path };
        expect(verifyConsistency(sha256, claim)).toBe(true);
        const refuses = (change: Partial<typeof claim>) => {
          expect(verifyConsistency(sha256, { ...claim, ...change })).toBe(false);
        };
        refuses({ root1: withFlippedBit(root1, bit) });
        refuses({ path: [...path, root2] });
        refuses({ root1: root1.subarray(1) });
        // A proof from the empty tree does not cover the second root, because every tree extends the empty tree.
        if (size1 > 0) refuses({ root2: withFlippedBit(root2, bit) });
        if (other !== size1 && other <= size2) refuses({ size1: other });
        if (size1 > 0 && size1 < size2) refuses({ size1: size2, size2: size1 });
        if (path.length === 0) return;
        const i = at % path.length;
        refuses({ path: path.with(i, withFlippedBit(path[i]!, bit)) });
        refuses({ path: path.toSpliced(i, 1) });
        refuses({ path: path.toSpliced(i, 0, path[i]!) });
        refuses({ path: [] });
      },
    ),
  );
});

describe('CompactRange', () => {
  it('has the root of the tree at every size, even after it is restored from its state', () => {
    let range = new CompactRange(sha256);
    for (let n = 0; n < MAX; n++) {
      expect(range.size).toBe(n);
      expect(range.root()).toEqual(rootOf(sha256, leaves, { start: 0, end: n }));
      if (n % 7 === 0) range = new CompactRange(sha256, { size: range.size, hashes: range.hashes });
      range.append(leaves[n]!);
    }
  });

  it('rejects a state that no tree has', () => {
    const hashes = [leaves[0]!, leaves[1]!];
    expect(refusal(() => new CompactRange(sha256, { size: 4, hashes })).code).toBe('out_of_range');
    expect(refusal(() => new CompactRange(sha256, { size: -1, hashes })).code).toBe('out_of_range');
    const short = [leaves[0]!, leaves[1]!.subarray(1)];
    expect(refusal(() => new CompactRange(sha256, { size: 3, hashes: short })).code).toBe(
      'out_of_range',
    );
  });
});
