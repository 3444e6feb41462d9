import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { HASH_BYTES } from '../merkle.js';
import { firstDifference, KEY_BYTES, mapLeafHash, valueHash, type MapNode } from './nodes.js';

/**
 * The stored form of a map. A page holds one subtree: at level 0 its leaves with their values, at
 * level n its pages of level n − 1. Integers are big-endian.
 *
 * ```text
 * page of level 0:  0, then for each leaf: key, 4 bytes length of the record, 4 bytes length of the
 *                   history, record, history
 * page of level n:  n, then for each page: least key, 1 byte first bit in which its keys differ,
 *                   2 bytes number of its items, 32 bytes root, 32 bytes SHA-256 of its bytes
 * ```
 */

export interface MapValue {
  record: Uint8Array;
  history: Uint8Array;
}

/** A leaf of the map. */
export interface Leaf extends MapNode, MapValue {}

/** The name of a page in a store. */
export interface PageId {
  level: number;
  /** SHA-256 of its bytes. */
  digest: Uint8Array;
}

/** A page as the page above it describes it. */
export interface PageRef extends MapNode, PageId {
  /** The first bit in which the keys of the page differ; 136 for a single key. */
  bit: number;
  /** Number of leaves or pages in the page. */
  count: number;
}

export const LEAF_HEAD_BYTES = KEY_BYTES + 8;
export const REF_BYTES = KEY_BYTES + 3 + 2 * HASH_BYTES;

/** A leaf with its hash. */
export function leafOf(sha256: Sha256, key: Uint8Array, { record, history }: MapValue): Leaf {
  const hash = mapLeafHash(sha256, { key, valueHash: valueHash(sha256, record, history) });
  return { key, record, history, hash };
}

/** The bytes of a page of level 0. */
export function encodeLeaves(leaves: readonly Leaf[]): Uint8Array {
  let length = 1;
  for (const { record, history } of leaves) {
    length += LEAF_HEAD_BYTES + record.length + history.length;
  }
  const bytes = new Uint8Array(length);
  const view = new DataView(bytes.buffer);
  let at = 1;
  for (const { key, record, history } of leaves) {
    bytes.set(key, at);
    view.setUint32(at + KEY_BYTES, record.length);
    view.setUint32(at + KEY_BYTES + 4, history.length);
    bytes.set(record, at + LEAF_HEAD_BYTES);
    bytes.set(history, at + LEAF_HEAD_BYTES + record.length);
    at += LEAF_HEAD_BYTES + record.length + history.length;
  }
  return bytes;
}

/** The bytes of a page of pages, all one level below. */
export function encodeRefs(level: number, refs: readonly PageRef[]): Uint8Array {
  const bytes = new Uint8Array(1 + refs.length * REF_BYTES);
  const view = new DataView(bytes.buffer);
  bytes[0] = level;
  refs.forEach(({ key, bit, count, hash, digest }, index) => {
    const at = 1 + index * REF_BYTES;
    bytes.set(key, at);
    view.setUint8(at + KEY_BYTES, bit);
    view.setUint16(at + KEY_BYTES + 1, count);
    bytes.set(hash, at + KEY_BYTES + 3);
    bytes.set(digest, at + KEY_BYTES + 3 + HASH_BYTES);
  });
  return bytes;
}

/** Ascending order of keys, for `sort`. */
export function byKey({ key: a }: { key: Uint8Array }, { key: b }: { key: Uint8Array }): number {
  const at = firstDifference(a, b) >> 3;
  return at === KEY_BYTES ? 0 : a[at]! - b[at]!;
}

/** The index of the last item whose key is at most `key`; -1 if there is none. */
export function lastUpTo(items: readonly { key: Uint8Array }[], key: Uint8Array): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (byKey(items[middle]!, { key }) <= 0) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export const malformed = (problem: string): ProtocolError =>
  new ProtocolError('malformed_map_page', `the page of the map ${problem}`);

export function push<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}
