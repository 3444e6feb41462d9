import { equalBytes } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { HASH_BYTES } from '../merkle.js';

/**
 * The map: a compressed binary prefix tree whose root commits to at most one value for each key
 * (spec/snapshot.md, Map). The root depends on the keys and values only.
 */

/** A key is a kind, then 16 bytes. */
export const KEY_BYTES = 17;
const KEY_BITS = 8 * KEY_BYTES;
export const STEP_BYTES = 1 + HASH_BYTES;

/** The first byte of a key. */
export const MAP_KINDS = { proof: 1, aepKey: 2, package: 3, share: 4 } as const;
type MapKind = keyof typeof MAP_KINDS;

/**
 * The key for 16 bytes: a UUID, the shard and index of an AEP key's activation, or the first half of a
 * token's SHA-256.
 *
 * @throws ProtocolError `out_of_range` for another number of bytes
 */
export function mapKey(kind: MapKind, id: Uint8Array): Uint8Array {
  if (id.length !== KEY_BYTES - 1) {
    throw new ProtocolError(
      'out_of_range',
      `the id in a map key has ${id.length} bytes instead of 16`,
    );
  }
  const key = new Uint8Array(KEY_BYTES);
  key[0] = MAP_KINDS[kind];
  key.set(id, 1);
  return key;
}

/** The activation index in the map key of an AEP key's record. */
export function activationIn(key: Uint8Array): number {
  return Number(new DataView(key.buffer, key.byteOffset, key.length).getBigUint64(KEY_BYTES - 8));
}

/** A subtree of a map. */
export interface MapNode {
  /** Any key of the subtree. */
  key: Uint8Array;
  hash: Uint8Array;
}

export interface MapLeaf {
  key: Uint8Array;
  valueHash: Uint8Array;
}

// Hashing is synchronous and keeps no input, so all calls share these buffers. A copy must fill its
// whole field; otherwise bytes of the previous call are hashed.
const scratch = new Uint8Array(1024);
/** A view that is reused while values have equal lengths: a new view costs as much as copying a value. */
let value = scratch;
const leaf = Uint8Array.of(3, ...new Uint8Array(KEY_BYTES + HASH_BYTES));
const inner = Uint8Array.of(4, 0, ...new Uint8Array(2 * HASH_BYTES));

/** The hash of a value: a record and its history. */
export function valueHash(sha256: Sha256, record: Uint8Array, history: Uint8Array): Uint8Array {
  const length = 5 + record.length + history.length;
  if (value.length !== length) {
    value = length <= scratch.length ? scratch.subarray(0, length) : new Uint8Array(length);
  }
  value[0] = 2;
  value[1] = record.length >> 24;
  value[2] = record.length >> 16;
  value[3] = record.length >> 8;
  value[4] = record.length;
  value.set(record, 5);
  value.set(history, 5 + record.length);
  return sha256(value);
}

export function mapLeafHash(sha256: Sha256, { key, valueHash: hash }: MapLeaf): Uint8Array {
  leaf.set(key, 1);
  leaf.set(hash, 1 + KEY_BYTES);
  return sha256(leaf);
}

export function innerHash(
  sha256: Sha256,
  bit: number,
  left: Uint8Array,
  right: Uint8Array,
): Uint8Array {
  inner[1] = bit;
  inner.set(left, 2);
  inner.set(right, 2 + HASH_BYTES);
  return sha256(inner);
}

/** The value of a key's bit, 0 or 1. Bit 0 is the highest bit of the first byte. */
export const bitOf = (key: Uint8Array, bit: number): number =>
  (key[bit >> 3]! >> (7 - (bit & 7))) & 1;

/** The first bit in which two keys differ; 136 for equal keys. */
export function firstDifference(a: Uint8Array, b: Uint8Array): number {
  for (let at = 0; at < KEY_BYTES; at++) {
    const difference = a[at]! ^ b[at]!;
    if (difference !== 0) return 8 * at + Math.clz32(difference) - 24;
  }
  return KEY_BITS;
}

/** The first bit in which the nodes `from` to `to` (at least two) differ, and the first node where this bit is 1. */
export function divide(nodes: readonly { key: Uint8Array }[], from: number, to: number) {
  const bit = firstDifference(nodes[from]!.key, nodes[to - 1]!.key);
  let low = from + 1;
  let high = to - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bitOf(nodes[middle]!.key, bit) === 1) high = middle;
    else low = middle + 1;
  }
  return { bit, at: low };
}

/** The root over disjoint subtrees in key order. The root over no subtrees is SHA-256 of the empty string. */
export function mapRoot(
  sha256: Sha256,
  nodes: readonly MapNode[],
  from = 0,
  to = nodes.length,
): Uint8Array {
  if (from === to) return sha256(new Uint8Array(0));
  if (to - from === 1) return nodes[from]!.hash;
  const { bit, at } = divide(nodes, from, to);
  const left = mapRoot(sha256, nodes, from, at);
  return innerHash(sha256, bit, left, mapRoot(sha256, nodes, at, to));
}

interface MapPathClaim {
  root: Uint8Array;
  /** The key sought, 17 bytes. */
  key: Uint8Array;
  path: Uint8Array;
  /** The leaf where the search for the key ends; null in the empty map. */
  end: MapLeaf | null;
}

/**
 * Checks that a path leads from a map root to the leaf where the search for `key` ends.
 *
 * @returns whether the map has the key; then `end.valueHash` is the hash of its value
 * @throws ProtocolError `malformed_map_path`, or `wrong_map_root` when the path leads to another root
 */
export function checkMapPath(sha256: Sha256, { root, key, path, end }: MapPathClaim): boolean {
  if (path.length % STEP_BYTES !== 0) throw malformed('ends within a step');
  if (end !== null && (end.key.length !== KEY_BYTES || end.valueHash.length !== HASH_BYTES)) {
    throw malformed('ends at a leaf whose key or hash has the wrong length');
  }
  let hash = end === null ? mapRoot(sha256, []) : mapLeafHash(sha256, end);
  let below = KEY_BITS;
  for (let at = path.length - STEP_BYTES; at >= 0; at -= STEP_BYTES) {
    const bit = path[at]!;
    const other = path.subarray(at + 1, at + STEP_BYTES);
    if (bit >= below) throw malformed(`has bit ${bit} above bit ${below}`);
    if (end === null || bitOf(end.key, bit) !== bitOf(key, bit)) {
      throw malformed('leads to a leaf where the search for this key does not end');
    }
    hash =
      bitOf(key, bit) === 1
        ? innerHash(sha256, bit, other, hash)
        : innerHash(sha256, bit, hash, other);
    below = bit;
  }
  if (!equalBytes(hash, root)) {
    throw new ProtocolError('wrong_map_root', 'the path does not lead to the root of the map');
  }
  return end !== null && equalBytes(end.key, key);
}

const malformed = (problem: string): ProtocolError =>
  new ProtocolError('malformed_map_path', `the path ${problem}`);
