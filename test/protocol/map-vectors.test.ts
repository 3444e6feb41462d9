import { expect, it } from 'vitest';
import { fromBase64, fromHex, toBase64, toHex } from '#protocol/bytes';
import { checkMapPath, mapKey, mapLeafHash, mapRoot, valueHash } from '#protocol/map/nodes';
import { sha256 } from '../fixtures/leaves.js';
import { mapPath } from '../fixtures/map-model.js';
import { nextVectors as vectors, type Lookup } from '../fixtures/next-vectors.js';

const leaves = vectors.map.map(({ key, record, history }) => {
  const hash = valueHash(sha256, fromHex(record), fromHex(history));
  const leaf = { key: fromHex(key), valueHash: hash };
  return { ...leaf, hash: mapLeafHash(sha256, leaf) };
});
const maps = {
  proofs: { root: vectors.map_root, nodes: leaves.filter(({ key }) => key[0]! <= 2) },
  shares: { root: vectors.shares_root, nodes: leaves.filter(({ key }) => key[0]! > 2) },
};

/** The key of a lookup: that of its record, or of the proof id that was not found. */
function keyOf({ record, history }: Lookup, identifier: string): Uint8Array {
  if (record === undefined || history === undefined) return mapKey('proof', fromHex(identifier));
  const hash = toHex(valueHash(sha256, fromBase64(record), fromBase64(history)));
  return leaves.find((one) => toHex(one.valueHash) === hash)!.key;
}

it('the roots of maps equal those of the Python implementation', () => {
  expect(toHex(mapRoot(sha256, []))).toBe(vectors.empty_root);
  for (const { root, nodes } of Object.values(maps)) {
    expect(toHex(mapRoot(sha256, nodes))).toBe(root);
  }
});

it('the paths of maps equal those of the Python implementation, and verify', () => {
  const found = vectors.evidence.flatMap(({ identifier, lookups }) =>
    lookups.map((lookup) => {
      const key = keyOf(lookup, identifier);
      const { root, nodes } = key[0]! <= 2 ? maps.proofs : maps.shares;
      const { path, end } = mapPath(sha256, nodes, key);
      expect(toBase64(path)).toBe(lookup.path);
      return checkMapPath(sha256, { root: fromHex(root), key, path, end: nodes[end]! });
    }),
  );
  const expected = vectors.evidence.flatMap(({ lookups }) =>
    lookups.map(({ record }) => record !== undefined),
  );
  expect(found).toEqual(expected);
  expect(new Set(found)).toEqual(new Set([true, false]));
});
