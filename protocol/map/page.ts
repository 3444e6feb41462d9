import { concat } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { HASH_BYTES } from '../merkle.js';
import {
  bitOf,
  firstDifference,
  innerHash,
  KEY_BYTES,
  mapLeafHash,
  STEP_BYTES,
  valueHash,
  type MapNode,
} from './nodes.js';
import { ProtocolError } from '../errors.js';

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

export interface Leaf extends MapNode, MapValue {}

/** The name of a page in a store. */
export interface PageId {
  level: number;
  /** SHA-256 of the bytes of the page. */
  digest: Uint8Array;
}

/** The description of a page in the page above it. */
export interface PageRef extends MapNode, PageId {
  /** The first bit in which the keys of the page differ; 136 for a single key. */
  bit: number;
  count: number;
}

const LEAF_HEAD_BYTES = KEY_BYTES + 8;
const REF_BYTES = KEY_BYTES + 3 + 2 * HASH_BYTES;

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

/** The bytes of a page that holds pages of the level below. */
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

export function byKey({ key: a }: { key: Uint8Array }, { key: b }: { key: Uint8Array }): number {
  const at = firstDifference(a, b) >> 3;
  return at === KEY_BYTES ? 0 : a[at]! - b[at]!;
}

/** The index of the last item whose key is at most `key`; -1 without such an item. */
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

/** A reference to a page, in the page above it or from a signed root. */
export interface PageLink extends PageId {
  /** The root over the items of the page. */
  hash: Uint8Array;
}

/**
 * A page in its stored form, searched without decoding its items.
 *
 * The root of a page determines every search: a page with the right root leads to the right item, even if
 * its references state wrong keys, because the root covers every bit that a search compares.
 */
export class StoredPage {
  readonly count: number;
  /** The offset of each item in `bytes`, and the end of the last item. */
  private readonly starts: Uint32Array;
  /** By index of an item: the first bit in which its key differs from the key before it. */
  private readonly bits: Uint8Array;
  /**
   * By index of an item: the hash of the inner node whose right side begins with it. At level 0, leaf hashes follow.
   */
  private hashes: Uint8Array | null = null;

  /** @throws ProtocolError `malformed_map_page` unless the bytes are a page of `level` */
  constructor(
    readonly level: number,
    readonly bytes: Uint8Array,
  ) {
    if (bytes[0] !== level) throw malformed(`has level ${bytes[0]} instead of ${level}`);
    this.starts = level === 0 ? startsOfLeaves(bytes) : startsOfRefs(bytes);
    this.count = this.starts.length - 1;
    if (this.count < 1) throw malformed('is empty');
    this.bits = new Uint8Array(this.count);
    for (let at = 1; at < this.count; at++) {
      const [before, key] = [this.keyAt(at - 1), this.keyAt(at)];
      const bit = firstDifference(before, key);
      if (bit >= 8 * KEY_BYTES || bitOf(key, bit) === 0) throw malformed('has unsorted keys');
      this.bits[at] = bit;
    }
  }

  keyAt(at: number): Uint8Array {
    const start = this.starts[at]!;
    return this.bytes.subarray(start, start + KEY_BYTES);
  }

  /** The item where the search for a key ends: the only one that can have the key. */
  endOf(key: Uint8Array): number {
    const { bits, count } = this;
    let end = 0;
    let at = 1;
    while (at < count) {
      const bit = bits[at]!;
      if (bitOf(key, bit) === 1) end = at++;
      // Skips the right side of this node.
      else
        do at++;
        while (at < count && bits[at]! > bit);
    }
    return end;
  }

  /** The range of items that includes every key that begins with this byte. */
  itemsOf(first: number): [from: number, to: number] {
    const prefix = Uint8Array.of(first);
    let from = 0;
    let to = this.count;
    while (to - from > 1) {
      const at = this.divide(from, to);
      const bit = this.bits[at]!;
      if (bit >= 8) break;
      if (bitOf(prefix, bit) === 1) from = at;
      else to = at;
    }
    return [from, to];
  }

  hasKey(at: number, key: Uint8Array): boolean {
    const start = this.starts[at]!;
    for (let i = KEY_BYTES - 1; i >= 0; i--) if (this.bytes[start + i] !== key[i]) return false;
    return true;
  }

  /** The leaf at an index. This method and `valueAt` are for pages of level 0 only. */
  leafAt(sha256: Sha256, at: number): Leaf {
    return { key: this.keyAt(at), ...this.valueAt(at), hash: this.leafHash(sha256, at) };
  }

  valueAt(at: number): MapValue {
    const { bytes, starts } = this;
    const body = starts[at]! + LEAF_HEAD_BYTES;
    const middle = body + uint32At(bytes, starts[at]! + KEY_BYTES);
    return {
      record: bytes.subarray(body, middle),
      history: bytes.subarray(middle, starts[at + 1]),
    };
  }

  /** The byte range of an item's root and digest, in a page of a level above 0. */
  hashesAt(at: number): [start: number, end: number] {
    const end = this.starts[at + 1]!;
    return [end - 2 * HASH_BYTES, end];
  }

  /** The reference at an index, in a page of a level above 0 only. */
  linkAt(at: number): PageLink {
    const [start, end] = this.hashesAt(at);
    const middle = start + HASH_BYTES;
    return {
      level: this.level - 1,
      hash: this.bytes.subarray(start, middle),
      digest: this.bytes.subarray(middle, end),
    };
  }

  root(sha256: Sha256): Uint8Array {
    return this.subtree(sha256, 0, this.count);
  }

  /**
   * The path from the root of the page to an item: 33 bytes for each inner node on the path, namely its
   * bit and the hash of the child that is not on the path.
   */
  pathTo(sha256: Sha256, at: number): Uint8Array {
    const path = new Uint8Array(STEP_BYTES * this.count);
    let length = 0;
    let from = 0;
    let to = this.count;
    while (to - from > 1) {
      const middle = this.divide(from, to);
      const isRight = at >= middle;
      path[length] = this.bits[middle]!;
      const other = isRight ? this.subtree(sha256, from, middle) : this.subtree(sha256, middle, to);
      path.set(other, length + 1);
      length += STEP_BYTES;
      if (isRight) from = middle;
      else to = middle;
    }
    return path.subarray(0, length);
  }

  private subtree(sha256: Sha256, from: number, to: number): Uint8Array {
    if (this.hashes === null) {
      this.hashes = new Uint8Array((this.level === 0 ? 2 : 1) * this.count * HASH_BYTES);
      this.hashNode(sha256, 0, this.count);
    }
    if (to - from > 1) return this.known(this.divide(from, to));
    return this.level === 0 ? this.known(this.count + from) : this.linkAt(from).hash;
  }

  private hashNode(sha256: Sha256, from: number, to: number): Uint8Array {
    const isItem = to - from === 1;
    if (isItem && this.level > 0) return this.linkAt(from).hash;
    const at = isItem ? this.count + from : this.divide(from, to);
    const hash = isItem
      ? this.leafHash(sha256, from)
      : innerHash(
          sha256,
          this.bits[at]!,
          this.hashNode(sha256, from, at),
          this.hashNode(sha256, at, to),
        );
    this.hashes!.set(hash, at * HASH_BYTES);
    return hash;
  }

  private known(at: number): Uint8Array {
    return this.hashes!.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES);
  }

  private leafHash(sha256: Sha256, at: number): Uint8Array {
    const { record, history } = this.valueAt(at);
    const hash = valueHash(sha256, record, history);
    return mapLeafHash(sha256, { key: this.keyAt(at), valueHash: hash });
  }

  /** Where the node over at least two items splits: the first item on its right side. */
  private divide(from: number, to: number): number {
    let least = from + 1;
    for (let at = from + 2; at < to; at++) if (this.bits[at]! < this.bits[least]!) least = at;
    return least;
  }
}

/**
 * The leaves of a page of level 0. Keys and values share the memory of `bytes`.
 *
 * @throws ProtocolError `malformed_map_page`
 */
export function decodeLeaves(sha256: Sha256, bytes: Uint8Array): Leaf[] {
  const page = new StoredPage(0, bytes);
  return Array.from({ length: page.count }, (_, at) => page.leafAt(sha256, at));
}

/**
 * The pages that a page of a level above 0 holds.
 *
 * @throws ProtocolError `malformed_map_page`
 */
export function decodeRefs(level: number, bytes: Uint8Array): PageRef[] {
  const page = new StoredPage(level, bytes);
  return Array.from({ length: page.count }, (_, at) => {
    const [end] = page.hashesAt(at);
    const count = 256 * bytes[end - 2]! + bytes[end - 1]!;
    return { ...page.linkAt(at), key: page.keyAt(at), bit: bytes[end - 3]!, count };
  });
}

/** Reads the page that an item refers to. */
export type ReadBelow = (page: StoredPage, at: number) => StoredPage;

/** The value of a key in the map below a head page; null if the map does not have the key. */
export function findValue(
  head: StoredPage | null,
  key: Uint8Array,
  below: ReadBelow,
): MapValue | null {
  let page = head;
  while (page !== null) {
    const end = page.endOf(key);
    if (page.level === 0) return page.hasKey(end, key) ? page.valueAt(end) : null;
    page = below(page, end);
  }
  return null;
}

export interface MapSearch {
  /** The path from the root of the map to `end`. */
  path: Uint8Array;
  /** The leaf where the search ends; null in the empty map. */
  end: Leaf | null;
}

/** The leaf where the search for a key ends, with the path to it. */
export function searchMap(
  sha256: Sha256,
  head: StoredPage | null,
  key: Uint8Array,
  below: ReadBelow,
): MapSearch {
  const paths: Uint8Array[] = [];
  for (let page = head; page !== null;) {
    const end = page.endOf(key);
    paths.push(page.pathTo(sha256, end));
    if (page.level === 0) return { path: concat(...paths), end: page.leafAt(sha256, end) };
    page = below(page, end);
  }
  return { path: new Uint8Array(0), end: null };
}

function startsOfLeaves(bytes: Uint8Array): Uint32Array {
  const starts: number[] = [];
  let at = 1;
  while (at < bytes.length) {
    starts.push(at);
    const body = at + LEAF_HEAD_BYTES;
    if (body > bytes.length) throw malformed('ends inside the lengths of a leaf');
    at = body + uint32At(bytes, at + KEY_BYTES) + uint32At(bytes, at + KEY_BYTES + 4);
  }
  if (at !== bytes.length) throw malformed('ends inside a leaf');
  return Uint32Array.from([...starts, at]);
}

function startsOfRefs(bytes: Uint8Array): Uint32Array {
  const count = (bytes.length - 1) / REF_BYTES;
  if (!Number.isInteger(count)) throw malformed('ends inside a reference');
  return Uint32Array.from({ length: count + 1 }, (_, at) => 1 + at * REF_BYTES);
}

function uint32At(bytes: Uint8Array, at: number): number {
  return bytes[at]! * 0x1000000 + ((bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!);
}
