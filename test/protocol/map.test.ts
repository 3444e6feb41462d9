import { describe, expect, it } from 'vitest';
import { concat, fromHex, toHex, utf8, equalBytes } from '#protocol/bytes';
import {
  checkMapPath,
  mapKey,
  valueHash,
  KEY_BYTES,
  mapRoot,
  type MapNode,
} from '#protocol/map/nodes';
import {
  decodeRefs,
  StoredPage,
  encodeRefs,
  type PageId,
  byKey,
  encodeLeaves,
  leafOf,
  type Leaf,
  type PageRef,
} from '#protocol/map/page';
import { MapPages, type MapHead } from '#protocol/map/paged-map';
import { sha256 } from '../fixtures/leaves.js';
import { applyTo, rootByDefinition, rootOf, type Model, mapPath } from '../fixtures/map-model.js';
import { MemoryStore, nameOf } from '../fixtures/map-store.js';
import { refusal } from '../fixtures/refusal.js';
import fc from 'fast-check';

/** The names of the pages that one update writes when it builds the whole map. */
async function pagesOf(model: Model, capacity: number): Promise<string[]> {
  const store = new MemoryStore();
  const changes = [...model].map(([key, value]) => ({ key: fromHex(key), value }));
  await new MapPages(sha256, store, capacity).update(null, changes);
  return [...store.pages.keys()].sort();
}

/** Alters one bit of a page below a head and each digest above it. Returns the digest of the new head page. */
function altered(
  store: MemoryStore,
  page: PageId,
  [step, ...steps]: readonly number[],
  at: number,
  bit: number,
): Uint8Array {
  let bytes: Uint8Array = store.pages.get(nameOf(page))!.slice();
  if (step === undefined || page.level === 0) bytes[at % bytes.length]! ^= 1 << bit;
  else {
    const refs = decodeRefs(page.level, bytes);
    const below = refs[step % refs.length]!;
    below.digest = altered(store, below, steps, at, bit);
    bytes = encodeRefs(page.level, refs);
  }
  const digest = sha256(bytes);
  store.pages.set(nameOf({ level: page.level, digest }), bytes);
  return digest;
}

type Update = typeof update extends fc.Arbitrary<infer T> ? T : never;
type Example = [[Update, Update], number[], number, number];

const REFUSED = Symbol('refused');
const outcomeOf = <T>(work: Promise<T>): Promise<T | typeof REFUSED> => work.catch(() => REFUSED);

// Few bits vary, so that keys repeat and subtrees of every depth occur.
const key = fc
  .tuple(fc.constantFrom(1, 2), fc.nat(3), fc.constantFrom(0, 1, 128, 255), fc.nat(7))
  .map(([kind, first, middle, last]) => {
    const bytes = new Uint8Array(17);
    bytes.set([kind, first], 0);
    bytes[9] = middle;
    bytes[16] = last;
    return bytes;
  });
const value = fc
  .tuple(fc.nat(3), fc.nat(2))
  .map(([record, events]) => ({ record: Uint8Array.of(record), history: new Uint8Array(events) }));
const change = fc.record({ key, value: fc.option(value, { freq: 2 }) });
const update = fc.uniqueArray(change, { maxLength: 40, selector: (one) => toHex(one.key) });

describe('a map in pages', () => {
  it('has the root that the specification defines, and the same pages for every order of changes', async () => {
    const updates = fc.array(update, { minLength: 1, maxLength: 6 });
    const property = fc.asyncProperty(
      updates,
      fc.integer({ min: 2, max: 6 }),
      fc.boolean(),
      async (all, most, isUntrusted) => {
        const store = new MemoryStore();
        const map = new MapPages(sha256, store, most, 0, isUntrusted);
        const model: Model = new Map();
        let head: MapHead = null;
        for (const changes of all) {
          const result = await map.update(head, changes);
          for (const page of result.superseded) store.pages.delete(nameOf(page));
          head = result.head;
          applyTo(model, changes);
          expect(rootOf(head)).toBe(rootByDefinition(model));
          expect([...store.pages.keys()].sort()).toEqual(await pagesOf(model, most));
        }
      },
    );
    await fc.assert(property, { numRuns: 300 });
  });

  it('in an untrusted store returns only values under its root, even if pages and digests are altered', async () => {
    const property = fc.asyncProperty(
      fc.tuple(update, update),
      fc.array(fc.nat(), { maxLength: 4 }),
      fc.nat(),
      fc.nat(7),
      async ([changes, next], steps, at, bit) => {
        const store = new MemoryStore();
        const { head } = await new MapPages(sha256, store, 2).update(null, changes);
        const model: Model = new Map();
        applyTo(model, changes);
        if (head === null) return;
        const lying = { ...head, digest: altered(store, head, steps, at, bit) };
        const map = new MapPages(sha256, store, 2, 100, true);
        const sought = (next[0] ?? changes[0])!.key;
        const found = await outcomeOf(map.find(lying, sought));
        if (found !== REFUSED) expect(found?.record).toEqual(model.get(toHex(sought))?.record);
        const updated = await outcomeOf(map.update(lying, next));
        applyTo(model, next);
        if (updated !== REFUSED) expect(rootOf(updated.head)).toBe(rootByDefinition(model));
      },
    );
    // The reference to the second page states a key that differs from the key of the page.
    const put = (kind: number, last: number) => {
      const one = new Uint8Array(17);
      one.set([kind], 0);
      one.set([last], 16);
      return { key: one, value: { record: Uint8Array.of(0), history: new Uint8Array(0) } };
    };
    const before = [put(1, 0), put(1, 1), put(2, 0)];
    const hiding: Example = [[before, [put(2, 0), put(2, 1)]], [], 85, 0];
    await fc.assert(property, { numRuns: 2_000, examples: [hiding] });
  });

  it('proves the presence or absence of each key, and no altered proof verifies', async () => {
    const property = fc.asyncProperty(
      update,
      key,
      fc.nat(),
      fc.nat(7),
      async (changes, sought, at, bit) => {
        const store = new MemoryStore();
        const map = new MapPages(sha256, store, 3);
        const { head } = await map.update(null, changes);
        const model: Model = new Map();
        applyTo(model, changes);
        const expected = model.get(toHex(sought));
        expect(await map.find(head, sought)).toEqual(
          expected === undefined ? null : expect.objectContaining(expected),
        );
        const { path, end } = store.search(head, sought);
        const root = fromHex(rootOf(head));
        const proof = { root, key: sought, path };
        if (end === null) {
          expect(checkMapPath(sha256, { ...proof, end })).toBe(false);
          return;
        }
        const leaf = { key: end.key, valueHash: valueHash(sha256, end.record, end.history) };
        expect(checkMapPath(sha256, { ...proof, end: leaf })).toBe(expected !== undefined);
        // One altered bit of the path, of the leaf's key or of its value.
        const parts = [path, leaf.key, leaf.valueHash].map((part) => part.slice());
        let index = at % parts.reduce((sum, part) => sum + part.length, 0);
        for (const part of parts) {
          if (index >= 0 && index < part.length) part[index]! ^= 1 << bit;
          index -= part.length;
        }
        const [otherPath, otherKey, otherValue] = parts as [Uint8Array, Uint8Array, Uint8Array];
        const other = { key: otherKey, valueHash: otherValue };
        expect(() =>
          checkMapPath(sha256, { root, key: sought, path: otherPath, end: other }),
        ).toThrow(/path/);
      },
    );
    await fc.assert(property, { numRuns: 2_000 });
  });

  it('rejects a path that is cut, reordered, without an end, or for another key or root', async () => {
    const store = new MemoryStore();
    const keys = [0, 1, 2].map((n) => mapKey('proof', new Uint8Array(16).fill(n)));
    const values = keys.map((one) => ({ key: one, value: { record: one, history: utf8('') } }));
    const { head } = await new MapPages(sha256, store).update(null, values);
    const { path, end } = store.search(head, keys[0]!);
    const leaf = { key: end!.key, valueHash: valueHash(sha256, end!.record, end!.history) };
    const good = { root: head!.hash, key: keys[0]!, path, end: leaf };
    expect(checkMapPath(sha256, good)).toBe(true);
    const codeOf = (changed: Partial<typeof good> | { end: null }): string =>
      refusal(() => checkMapPath(sha256, { ...good, ...changed })).code;
    expect(codeOf({ path: path.subarray(1) })).toBe('malformed_map_path');
    expect(codeOf({ path: concat(path.subarray(33), path.subarray(0, 33)) })).toBe(
      'malformed_map_path',
    );
    expect(codeOf({ end: null })).toBe('malformed_map_path');
    // The search for this key ends at a different leaf.
    expect(codeOf({ key: keys[2]! })).toBe('malformed_map_path');
    expect(codeOf({ root: keys[1]! })).toBe('wrong_map_root');
  });

  it('rejects an id whose length is not 16 bytes', () => {
    expect(refusal(() => mapKey('proof', new Uint8Array(15))).code).toBe('out_of_range');
    expect(refusal(() => mapKey('proof', new Uint8Array(17))).code).toBe('out_of_range');
  });

  it('rejects a leaf with a key or hash of the wrong length, which could hide a present key', async () => {
    const store = new MemoryStore();
    const present = mapKey('proof', new Uint8Array(16));
    const { head } = await new MapPages(sha256, store).update(null, [
      { key: present, value: { record: present, history: present } },
    ]);
    const { path, end } = store.search(head, present);
    const leaf = { key: present, valueHash: valueHash(sha256, end!.record, end!.history) };
    const claim = { root: head!.hash, key: present, path };
    for (const length of [16, 18]) {
      const key = new Uint8Array(length);
      key.set(present.subarray(0, length));
      // This first check fills the shared buffer with the whole key.
      expect(checkMapPath(sha256, { ...claim, end: leaf })).toBe(true);
      const error = refusal(() => checkMapPath(sha256, { ...claim, end: { ...leaf, key } }));
      expect(error.code).toBe('malformed_map_path');
    }
    const end31 = { key: present, valueHash: leaf.valueHash.subarray(0, 31) };
    expect(refusal(() => checkMapPath(sha256, { ...claim, end: end31 })).code).toBe(
      'malformed_map_path',
    );
  });

  it('rejects pages that are damaged or stored under the name of another page', async () => {
    const store = new MemoryStore();
    const map = new MapPages(sha256, store, 2);
    const changes = Array.from({ length: 9 }, (_, n) => ({
      key: mapKey('proof', new Uint8Array(16).fill(n)),
      value: { record: Uint8Array.of(n), history: Uint8Array.of(n) },
    }));
    const { head } = await map.update(null, changes);
    const good = new Map(store.pages);
    expect(good.size).toBeGreaterThan(5);
    for (const [name, bytes] of good) {
      for (let at = 0; at <= bytes.length; at += 1) {
        const damaged = at < bytes.length ? bytes.slice() : bytes.slice(0, -1);
        if (at < bytes.length) damaged[at]! ^= 1;
        store.pages.set(name, damaged);
        const all = Promise.all(changes.map((one) => map.find(head, one.key)));
        await expect(all, `${name} at ${String(at)}`).rejects.toMatchObject({
          code: 'malformed_map_page',
        });
      }
      store.pages.set(name, bytes);
    }
  });
});

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

it('stored page > gives the same items, paths and root as its decoded items', () => {
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

it('stored page > is malformed when it is empty, truncated, unsorted or of the wrong level', () => {
  const leaves = leavesOf([Uint8Array.from({ length: 17 }, () => 1), new Uint8Array(17)]);
  const [low, high] = leaves as [Leaf, Leaf];
  const bytes = encodeLeaves(leaves);
  const wrong: [number, Uint8Array][] = [
    [0, Uint8Array.of(0)],
    [1, encodeRefs(2, refsOf(leaves))],
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
