import { createHash, type Hash } from 'node:crypto';

/** The bytes of one item; of one that is longer than an item may be, only their hash. */
export type SplitItem = { bytes: Buffer } | { tooLong: Buffer };

/** Why a body has no items: it is refused as a whole. */
export class SplitError extends Error {
  override readonly name = 'SplitError';

  constructor(
    readonly code: 'malformed_json' | 'invalid_field',
    message: string,
  ) {
    super(message);
  }
}

/** Cuts a body into its items while it comes. What is inside an item is looked at by who reads it. */
export interface Splitter {
  /** The items that this piece completes. Nothing any more once the body is found to have none. */
  push(piece: Buffer): SplitItem[];
  /**
   * The items that the end completes.
   *
   * @throws SplitError
   */
  end(): SplitItem[];
}

const isSpace = (code: number | undefined): boolean =>
  code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;

/** The bytes of the item at hand, in pieces, and no more of them than an item may have. */
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

  /** What was added since the last time; null when that was nothing but white space. */
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
 * The items of a JSON array. It knows strings and how deep brackets are, and nothing else of JSON:
 * what stands between two commas of the array is an item, and whether it is JSON is its own affair.
 * No byte of a longer UTF-8 sequence is one of those that are looked for here.
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
        // An array that has nothing in it is one all the same.
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

/** The items of lines, one a line. Lines of white space are none. */
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
