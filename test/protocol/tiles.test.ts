import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { concat, equalBytes, utf8 } from '#protocol/bytes';
import {
  consistencyFromTiles,
  decodeEntryBundle,
  encodeEntryBundle,
  extendTiles,
  hashAt,
  inclusionFromTiles,
  rootFromTiles,
  tilePath,
  tilesBetween,
  tilesForAppend,
  type TileReader,
} from '#protocol/tiles';
import { leafHashes, sha256 } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import { consistencyPath, inclusionPath, rootOf } from '../fixtures/tree.js';

/** A log that stores its tiles like a server, and counts the tiles read. */
class TileStore {
  readonly tiles = new Map<string, Uint8Array>();
  size = 0;
  reads = 0;

  append(leaves: readonly Uint8Array[]): void {
    const current = tilesForAppend(this.size, leaves.length).map(({ level, index, width }) => {
      const hashes = this.tiles.get(`${level}/${index}`)!;
      expect(hashes).toHaveLength(width * 32);
      return { level, index, hashes };
    });
    const touched = extendTiles(sha256, this.size, leaves, current);
    const size = this.size + leaves.length;
    expect(
      touched.map(({ level, index, hashes }) => ({ level, index, width: hashes.length / 32 })),
    ).toEqual(tilesBetween(this.size, size));
    for (const { level, index, hashes } of touched) {
      const before = this.tiles.get(`${level}/${index}`) ?? new Uint8Array(0);
      // Tiles only grow: the old content is a proper prefix of the new content.
      expect(hashes.length).toBeGreaterThan(before.length);
      expect(equalBytes(hashes.subarray(0, before.length), before)).toBe(true);
      this.tiles.set(`${level}/${index}`, hashes);
    }
    this.size = size;
  }

  read: TileReader = (level, index, width) => {
    this.reads++;
    const tile = this.tiles.get(`${level}/${index}`);
    if (tile === undefined || tile.length < width * 32)
      throw new Error(`no tile ${level}/${index}.p/${width}`);
    return Promise.resolve(tile);
  };
}

// Two full tile levels and a partial third level.
const MAX = 256 * 256 + 700;
const leaves = leafHashes(MAX);
const store = new TileStore();
store.append(leaves);

it.each([
  [0, 0, undefined, 'tile/0/000'],
  [0, 67, undefined, 'tile/0/067'],
  [0, 1234067, undefined, 'tile/0/x001/x234/067'],
  [1, 1000, undefined, 'tile/1/x001/000'],
  [2, 0, 1, 'tile/2/000.p/1'],
  [0, 273, 112, 'tile/0/273.p/112'],
  [0, 273, 256, 'tile/0/273'],
  [63, 999, 255, 'tile/63/999.p/255'],
  [0, Number.MAX_SAFE_INTEGER, undefined, 'tile/0/x009/x007/x199/x254/x740/991'],
])('tile paths > format level %d, index %d and width %j as %s', (level, index, width, path) => {
  expect(tilePath(level, index, width)).toBe(path);
});

describe('tiles of a log', () => {
  it('do not depend on the number of leaves per append', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 700 }), { minLength: 1, maxLength: 8 }),
        (groups) => {
          const grouped = new TileStore();
          for (const count of groups)
            grouped.append(leaves.slice(grouped.size, grouped.size + count));
          const whole = new TileStore();
          whole.append(leaves.slice(0, grouped.size));
          expect(grouped.tiles).toEqual(whole.tiles);
        },
      ),
      { numRuns: 12 },
    );
  });

  it('are rejected when their number contradicts the tree size', () => {
    const tile = { level: 0, index: 0, hashes: concat(...leaves.slice(0, 5)) };
    const more = leaves.slice(5, 7);
    expect(extendTiles(sha256, 5, more, [tile])).toHaveLength(1);
    expect(refusal(() => extendTiles(sha256, 5, more, [])).code).toBe('malformed_tile');
    expect(refusal(() => extendTiles(sha256, 4, more, [tile])).code).toBe('malformed_tile');
    expect(refusal(() => extendTiles(sha256, 6, more, [tile])).code).toBe('malformed_tile');
    expect(refusal(() => extendTiles(sha256, 5, [more[0]!.subarray(1)], [tile])).code).toBe(
      'malformed_tile',
    );
  });
});

describe('TreeReader', () => {
  const size = fc.oneof(
    fc.integer({ min: 1, max: MAX }),
    fc.constantFrom(1, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, MAX),
  );

  it('returns the root of the tree at every size', async () => {
    await fc.assert(
      fc.asyncProperty(size, async (n) => {
        expect(await rootFromTiles(sha256, n, store.read)).toEqual(
          rootOf(sha256, leaves, { start: 0, end: n }),
        );
      }),
      { numRuns: 12 },
    );
    expect(await rootFromTiles(sha256, 0, store.read)).toEqual(rootOf(sha256, []));
  });

  it('builds the proofs that follow from the leaves, and reads few tiles', async () => {
    const place = size.chain((n) => fc.tuple(fc.nat(n - 1), fc.constant(n)));
    await fc.assert(
      fc.asyncProperty(place, async ([index, n]) => {
        store.reads = 0;
        expect(await inclusionFromTiles(sha256, index, n, store.read)).toEqual(
          inclusionPath(sha256, leaves, index, n),
        );
        expect(store.reads).toBeLessThanOrEqual(2 * 3);
        expect(await consistencyFromTiles(sha256, index, n, store.read)).toEqual(
          consistencyPath(sha256, leaves, index, n),
        );
      }),
      { numRuns: 12 },
    );
  });

  it('rejects a node that exceeds the size of the tree', async () => {
    const node = { level: 9, index: 1 };
    const found = await hashAt(sha256, node, 1024, store.read);
    expect(found).toEqual(rootOf(sha256, leaves, { start: 512, end: 1024 }));
    const beyond = hashAt(sha256, node, 1023, store.read);
    await expect(beyond).rejects.toHaveProperty('code', 'out_of_range');
  });

  it('rejects a tile with too few hashes', async () => {
    const short: TileReader = async (level, index, width) =>
      (await store.read(level, index, width)).subarray(0, width * 32 - 1);
    await expect(rootFromTiles(sha256, 300, short)).rejects.toHaveProperty(
      'code',
      'malformed_tile',
    );
  });
});

it('entry bundles > are rejected when truncated, too long, or containing an oversized entry', () => {
  const bundle = encodeEntryBundle([utf8('abc'), utf8('d')]);
  for (const cut of [1, 2, 3, 4, 6, 7]) {
    expect(refusal(() => decodeEntryBundle(bundle.subarray(0, cut))).code).toBe('malformed_tile');
  }
  expect(refusal(() => decodeEntryBundle(new Uint8Array(2 * 257))).code).toBe('malformed_tile');
  expect(refusal(() => encodeEntryBundle([new Uint8Array(65_536)])).code).toBe('malformed_entry');
});
