import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { toHex } from '#protocol/bytes';
import { consistencyRanges, inclusionRanges, leafHash, type LeafRange } from '#protocol/merkle';
import { nativeSha256 } from '#runtime/crypto/node';
import published from '../vectors/subtrees.json' with { type: 'json' };
import { rootOf } from '../fixtures/tree.js';

/**
 * The published vectors hash every proof over every subtree of all trees of up to 130 leaves into
 * one rolling SHA-256. The start of a subtree [start, end) is a multiple of the smallest power of
 * two that covers its length. Leaf i is the byte i.
 */
const leaves = Array.from({ length: published.leaves }, (_, i) =>
  leafHash(nativeSha256, Uint8Array.of(i)),
);

const roots = new Map<string, string>();
function root({ start, end }: LeafRange): string {
  const name = `${start}-${end}`;
  let hex = roots.get(name);
  if (hex === undefined)
    roots.set(name, (hex = toHex(rootOf(nativeSha256, leaves, { start, end }))));
  return hex;
}

function isSubtree({ start, end }: LeafRange): boolean {
  let covering = 1;
  while (covering < end - start) covering *= 2;
  return start % covering === 0;
}

const subtrees: LeafRange[] = [];
for (let end = 1; end <= published.leaves; end++) {
  for (let start = 0; start < end; start++) {
    if (isSubtree({ start, end })) subtrees.push({ start, end });
  }
}

function shifted(ranges: LeafRange[], by: number): LeafRange[] {
  return ranges.map(({ start, end }) => ({ start: start + by, end: end + by }));
}

/**
 * The proof from a subtree to the tree: within the largest aligned part that begins at the
 * subtree's start, the RFC 6962 proof; above that part, its inclusion proof.
 */
function subtreeConsistency({ start, end }: LeafRange, size: number): LeafRange[] {
  const above: LeafRange[] = [];
  let part: LeafRange = { start: 0, end: size };
  while (part.start < start) {
    let half = 1;
    while (half * 2 < part.end - part.start) half *= 2;
    const middle = part.start + half;
    const [left, right] = [
      { start: part.start, end: middle },
      { start: middle, end: part.end },
    ];
    const inLeft = end <= middle;
    above.unshift(inLeft ? right : left);
    part = inLeft ? left : right;
  }
  const within = consistencyRanges(end - part.start, part.end - part.start);
  return [...shifted(within, part.start), ...above];
}

describe('Merkle tree functions, called for all trees up to 130 leaves,', () => {
  it('yield the published hash of all subtree hashes', () => {
    const rolling = createHash('sha256');
    for (const range of subtrees) rolling.update(`[${range.start}, ${range.end}) ${root(range)}\n`);
    expect(rolling.digest('hex')).toBe(published.subtree_hashes);
  });

  it('yield the published hash of all inclusion proofs', () => {
    const rolling = createHash('sha256');
    for (const { start, end } of subtrees) {
      for (let index = start; index < end; index++) {
        const path = shifted(inclusionRanges(index - start, end - start), start).map(root);
        rolling.update([`${index} [${start}, ${end})`, ...path].join(' ') + '\n');
      }
    }
    expect(rolling.digest('hex')).toBe(published.inclusion_proofs);
  });

  it('yield the published hash of all consistency proofs', () => {
    const rolling = createHash('sha256');
    for (let size = 0; size <= published.leaves; size++) {
      for (const subtree of subtrees) {
        if (subtree.end > size) continue;
        const path = subtreeConsistency(subtree, size).map(root);
        rolling.update([`[${subtree.start}, ${subtree.end}) ${size}`, ...path].join(' ') + '\n');
      }
    }
    expect(rolling.digest('hex')).toBe(published.consistency_proofs);
  });
});
