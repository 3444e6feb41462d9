import { createHash, type Hash } from 'node:crypto';

export type SplitItem = { bytes: Buffer } | { tooLong: Buffer };

export class SplitError extends Error {
  override readonly name = 'SplitError';

  constructor(
    readonly code: 'malformed_json' | 'invalid_field',
    message: string,
  ) {
    super(message);
  }
}

/** Splits a body into items while it streams in. Does not parse the items. */
export interface Splitter {
  /** Items that this piece completes; none after a fault. */
  push(piece: Buffer): SplitItem[];
  /**
   * Items that the end completes.
   *
   * @throws SplitError
   */
  end(): SplitItem[];
}

const isSpace = (code: number | undefined): boolean =>
  code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;

/** Collects the bytes of the current item, at most `limit` of them. */
class ItemBytes {
  private pieces: Buffer[] = [];
  private length = 0;
  private hash: Hash | null = null;

  constructor(private readonly limit: number) {}

  add(piece: Buffer): void {
    const bytes = this.length === 0 ? trimStart(piece) : piece;
    this.length += bytes.length;
    if (this.hash !== null) this.hash.update(bytes);
    else this.pieces.push(bytes);
    if (this.hash === null && this.length > this.limit) {
      this.hash = createHash('sha256');
      for (const one of this.pieces.splice(0)) this.hash.update(one);
    }
  }

  /** Returns the item and resets; null for only white space. */
  take(): SplitItem | null {
    const { hash, pieces, length } = this;
    this.pieces = [];
    this.length = 0;
    this.hash = null;
    if (hash !== null) return { tooLong: hash.digest() };
    if (length === 0) return null;
    const [first] = pieces;
    const whole =
      pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces, length);
    let end = whole.length;
    while (isSpace(whole[end - 1])) end -= 1;
    return { bytes: whole.subarray(0, end) };
  }
}

function trimStart(bytes: Buffer): Buffer {
  let start = 0;
  while (isSpace(bytes[start])) start += 1;
  return start === 0 ? bytes : bytes.subarray(start);
}

/**
 * Splits a JSON array at its top-level commas by tracking strings and nesting only. Invalid JSON
 * within an item is the item's problem. Byte-wise is safe: UTF-8 continuation bytes are not ASCII.
 */
export function arraySplitter(itemLimit: number): Splitter {
  const item = new ItemBytes(itemLimit);
  let place: 'before' | 'inside' | 'after' = 'before';
  let fault: SplitError | null = null;
  let depth = 0;
  let inString = false;
  let escaped = false;
  let offset = 0;
  let any = false;

  const broken = (what: string, at: number): void => {
    fault = new SplitError('malformed_json', `${what} at byte ${String(offset + at)}`);
  };

  function outside(piece: Buffer, start: number): number {
    let at = start;
    while (isSpace(piece[at])) at += 1;
    if (at >= piece.length) return at;
    if (place === 'after') broken('unexpected text after the array', at);
    else if (piece[at] === 0x5b) place = 'inside';
    else fault = new SplitError('invalid_field', 'expected an array');
    return at + 1;
  }

  /** Reads up to the end of an item or of the piece, and returns where it stopped. */
  function inside(piece: Buffer, start: number): number {
    let at = start;
    for (; at < piece.length; at += 1) {
      const code = piece[at];
      if (inString) {
        if (escaped) escaped = false;
        else if (code === 0x5c) escaped = true;
        else if (code === 0x22) inString = false;
      } else if (code === 0x22) inString = true;
      else if (code === 0x7b || code === 0x5b) depth += 1;
      else if (depth === 0 && (code === 0x2c || code === 0x5d || code === 0x7d)) break;
      else if (code === 0x7d || code === 0x5d) depth -= 1;
    }
    item.add(piece.subarray(start, at));
    return at;
  }

  return {
    push(piece) {
      const items: SplitItem[] = [];
      for (let at = 0; at < piece.length && fault === null;) {
        if (place !== 'inside') {
          at = outside(piece, at);
          continue;
        }
        at = inside(piece, at);
        const code = piece[at];
        if (code === undefined) break;
        const found = item.take();
        if (found !== null) items.push(found);
        // `[]` is a valid array.
        else if (any || code !== 0x5d) broken('expected a value', at);
        if (code === 0x7d) broken("expected ',' or ']'", at);
        any = true;
        if (code === 0x5d) place = 'after';
        at += 1;
      }
      offset += piece.length;
      return fault === null ? items : [];
    },
    end() {
      if (fault === null && place === 'before') broken('the body is empty', 0);
      if (fault === null && place === 'inside') broken('the array is not closed', 0);
      if (fault !== null) throw fault;
      return [];
    },
  };
}

/** Splits lines, one item per line. Skips blank lines. */
export function lineSplitter(itemLimit: number): Splitter {
  const item = new ItemBytes(itemLimit);
  return {
    push(piece) {
      const items: SplitItem[] = [];
      for (let start = 0; start < piece.length;) {
        const end = piece.indexOf(0x0a, start);
        item.add(piece.subarray(start, end === -1 ? piece.length : end));
        if (end === -1) break;
        const found = item.take();
        if (found !== null) items.push(found);
        start = end + 1;
      }
      return items;
    },
    end() {
      const found = item.take();
      return found === null ? [] : [found];
    },
  };
}
