import fc from 'fast-check';
import { expect, it } from 'vitest';
import { equalBytes, toHex } from '#protocol/bytes';
import { KEY_BYTES, mapRoot, type MapNode } from '#protocol/map/nodes';
import {
  byKey,
  encodeLeaves,
  encodeRefs,
  leafOf,
  type Leaf,
  type PageRef,
} from '#protocol/map/page';
import { StoredPage } from '#protocol/map/stored-page';
import { sha256 } from '../fixtures/leaves.js';
import { mapPath } from '../fixtures/map-model.js';
import { refusal } from '../fixtures/refusal.js';

// Few bits vary, so that subtrees of every depth occur.
const keys = fc
  .tuple(
    fc.integer({ min: 1, max: 4 }),
    fc.integer({ min: 0, max: 31 }),
    fc.integer({ max: 7, min: 0 }),
  )
  .map(([kind, high, low]) => {
    const key = new Uint8Array(KEY_BYTES);
    key.set([kind, high << 3], 0);
    key[KEY_BYTES - 1] = low;
    return key;
  });
const sets = fc.uniqueArray(keys, { selector: toHex, minLength: 1, maxLength: 40 });

const leavesOf = (of: readonly Uint8Array[]): Leaf[] =>
  of
    .map((key, i) =>
      leafOf(sha256, key, { record: key.slice(0, i % 5), history: key.slice(0, i % 3) }),
    )
    .sort(byKey);

const refsOf = (leaves: readonly Leaf[]): PageRef[] =>
  leaves.map(({ key, hash }) => {
    return { level: 0, key, hash, bit: 136, count: 1, digest: sha256(key) };
  });

it('stored page > finds, proves and hashes the same as its decoded items', () => {
  fc.assert(
    fc.property(sets, keys, (of, sought) => {
      const leaves = leavesOf(of);
      const pages: [StoredPage, readonly MapNode[]][] = [
        [new StoredPage(0, encodeLeaves(leaves)), leaves],
        [new StoredPage(1, encodeRefs(1, refsOf(leaves))), leaves],
      ];
      for (const [page, items] of pages) {
        const { path, end } = mapPath(sha256, items, sought);
        expect(page.endOf(sought)).toBe(end);
        expect(page.pathTo(sha256, end)).toEqual(path);
        expect(page.root(sha256)).toEqual(mapRoot(sha256, items));
        expect(page.hasKey(end, sought)).toBe(of.some((key) => equalBytes(key, sought)));
        const [from, to] = page.itemsOf(sought[0]!);
        const first = items.findIndex(({ key }) => key[0] === sought[0]);
        const count = items.filter(({ key }) => key[0] === sought[0]).length;
        if (count > 0) expect([from, to]).toEqual([first, first + count]);
      }
      const [[page]] = pages as [[StoredPage, unknown]];
      expect(leaves.map((_, at) => page.leafAt(sha256, at))).toEqual(leaves);
    }),
  );
});

it('stored page > leads to the same page when keys of its references are altered in bits that the root does not cover', () => {
  const leaves = leavesOf(
    [0x10, 0x20, 0x30].map((high) => Uint8Array.of(1, high, ...Array<number>(15).fill(9))),
  );
  const refs = refsOf(leaves);
  const altered = refs.map((ref) => ({ ...ref, key: Uint8Array.from(ref.key).fill(0xff, 2) }));
  const page = new StoredPage(1, encodeRefs(1, altered));
  expect(page.root(sha256)).toEqual(mapRoot(sha256, refs));
  for (const [at, { key }] of leaves.entries()) expect(page.endOf(key)).toBe(at);
});

it('stored page > is malformed when it is empty, truncated, unsorted or of another level', () => {
  const leaves = leavesOf([Uint8Array.from({ length: 17 }, () => 1), new Uint8Array(17)]);
  const [low, high] = leaves as [Leaf, Leaf];
  const bytes = encodeLeaves(leaves);
  const wrong: [number, Uint8Array][] = [
    [0, Uint8Array.of(0)],
    [1, bytes],
    [0, encodeLeaves([high, low])],
    [0, encodeLeaves([low, low])],
    [1, encodeRefs(1, refsOf([high, low]))],
    [1, encodeRefs(1, refsOf(leaves)).subarray(0, -1)],
    ...Array.from({ length: bytes.length - 2 }, (_, i): [number, Uint8Array] => [
      0,
      bytes.subarray(0, i + 2),
    ]).filter(([, cut]) => cut.length !== encodeLeaves([low]).length),
  ];
  for (const [level, page] of wrong) {
    expect(refusal(() => new StoredPage(level, page)).code).toBe('malformed_map_page');
  }
});
