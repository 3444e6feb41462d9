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
} from './nodes.js';
import {
  LEAF_HEAD_BYTES,
  malformed,
  REF_BYTES,
  type Leaf,
  type MapValue,
  type PageId,
  type PageRef,
} from './page.js';

/** A reference to a page, in the page above it or from a signed root. */
export interface PageLink extends PageId {
  /** The root of its items. */
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
  /** Where each item begins, and the end of the last one. */
  private readonly starts: Uint32Array;
  /** By index of an item: the first bit in which its key differs from the key before it. */
  private readonly bits: Uint8Array;
  /** By item index: the hash of the node that splits before the item. At level 0, item hashes follow. */
  private hashes: Uint8Array | null = null;

  /** @throws ProtocolError `malformed_map_page` for a page of another form or level */
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

  /** Whether an item has this key. */
  hasKey(at: number, key: Uint8Array): boolean {
    const start = this.starts[at]!;
    for (let i = KEY_BYTES - 1; i >= 0; i--) if (this.bytes[start + i] !== key[i]) return false;
    return true;
  }

  /** An item of level 0. */
  leafAt(sha256: Sha256, at: number): Leaf {
    return { key: this.keyAt(at), ...this.valueAt(at), hash: this.leafHash(sha256, at) };
  }

  /** The value of an item of level 0. */
  valueAt(at: number): MapValue {
    const { bytes, starts } = this;
    const body = starts[at]! + LEAF_HEAD_BYTES;
    const middle = body + uint32At(bytes, starts[at]! + KEY_BYTES);
    return {
      record: bytes.subarray(body, middle),
      history: bytes.subarray(middle, starts[at + 1]),
    };
  }

  /** The range of the bytes with root and digest of an item, in a page of a level above 0. */
  hashesAt(at: number): [start: number, end: number] {
    const end = this.starts[at + 1]!;
    return [end - 2 * HASH_BYTES, end];
  }

  /** An item of a level above 0. */
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
   * bit and the hash of its child beside the path.
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
 * The leaves of a page of level 0. Their keys and values share the memory of `bytes`.
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
    if (body > bytes.length) throw malformed('ends in the lengths of a leaf');
    at = body + uint32At(bytes, at + KEY_BYTES) + uint32At(bytes, at + KEY_BYTES + 4);
  }
  if (at !== bytes.length) throw malformed('ends in a leaf');
  return Uint32Array.from([...starts, at]);
}

function startsOfRefs(bytes: Uint8Array): Uint32Array {
  const count = (bytes.length - 1) / REF_BYTES;
  if (!Number.isInteger(count)) throw malformed('ends in a reference');
  return Uint32Array.from({ length: count + 1 }, (_, at) => 1 + at * REF_BYTES);
}

function uint32At(bytes: Uint8Array, at: number): number {
  return bytes[at]! * 0x1000000 + ((bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!);
}
