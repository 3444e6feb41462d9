import { createHash, type Hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isObject } from '#protocol/json';
import { yieldEvery } from '#runtime/concurrency';
import { streamBody } from '#runtime/http/json-body';
import {
  AGENT,
  EXECUTE,
  parseAdmission,
  requireAllowed,
  type ParsedAdmission,
} from '../admission/admit.js';
import type { Caller } from '../http/authenticate.js';
import { newUuidHex } from '#sql/db/columns';
import { bodyProblem, parseJson, unknownVersion } from '../http/request.js';
import { at, Problem } from '../http/problem.js';
import type { BatchUpload } from './uploads.js';

export type SplitItem = { bytes: Buffer } | { tooLong: Buffer };

function unsplittable(code: 'malformed_json' | 'invalid_field', fault: string): Problem {
  return new Problem(code, `The body cannot be split into items: ${fault}.`, at('', fault));
}

/** Splits a body into items while it streams in. Does not parse the items. */
export interface Splitter {
  /** Returns the items that this piece completes; none after a fault. */
  push(piece: Buffer): SplitItem[];
  /** Returns the item that the end of the body completes, if any, or why the body cannot be split. */
  end(): SplitItem[] | Problem;
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
    // Drops leading white space: millions of blank chunks would fill the memory.
    if (bytes.length === 0) return;
    this.length += bytes.length;
    if (this.hash !== null) this.hash.update(bytes);
    else this.pieces.push(bytes);
    if (this.hash === null && this.length > this.limit) {
      this.hash = createHash('sha256');
      for (const one of this.pieces.splice(0)) this.hash.update(one);
    }
  }

  get isEmpty(): boolean {
    return this.length === 0;
  }

  /** Returns the collected item, or null for only white space, and starts the next item. */
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
 * within an item is the item's problem. Works on bytes: UTF-8 continuation bytes are never ASCII.
 */
export function arraySplitter(itemLimit: number): Splitter {
  const item = new ItemBytes(itemLimit);
  let place: 'before' | 'inside' | 'after' = 'before';
  let fault: Problem | null = null;
  let depth = 0;
  let inString = false;
  let escaped = false;
  let offset = 0;
  let any = false;

  const broken = (what: string, at: number): void => {
    fault = unsplittable('malformed_json', `${what} at byte ${String(offset + at)}`);
  };

  function outside(piece: Buffer, start: number): number {
    let at = start;
    while (isSpace(piece[at])) at += 1;
    if (at >= piece.length) return at;
    if (place === 'after') broken('unexpected text after the array', at);
    else if (piece[at] === 0x5b) place = 'inside';
    else fault = unsplittable('invalid_field', 'expected an array');
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
      return fault ?? [];
    },
  };
}

/** Splits NDJSON at its line feeds, and skips blank lines. */
export function lineSplitter(itemLimit: number): Splitter {
  const item = new ItemBytes(itemLimit);
  return {
    push(piece) {
      const items: SplitItem[] = [];
      for (let start = 0; start < piece.length;) {
        // Skips consecutive blank lines in one loop: a search and a copy per line would take seconds for millions of lines.
        if (item.isEmpty) while (isSpace(piece[start])) start += 1;
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

const JSON_ARRAY = 'application/json';
export const JSON_LINES = 'application/x-ndjson';

/** A valid item whose facts and parent are still to be checked with a query. */
export interface ParsedItem extends Omit<ParsedAdmission, 'body'> {
  proofId: string;
}

/** A parsed batch: every item is in `items` or in `problems`, by index. */
export interface ParsedBatch {
  total: number;
  items: Map<number, ParsedItem>;
  problems: Map<number, Problem>;
  /** Deduplication key: hash of the items in order, independent of formatting. */
  itemsHash: Buffer;
  /** A fault of the whole body; the caller throws it after the checks of the headers. */
  fault: Problem | null;
}

/** Throws a problem that ends the reading of the body early. Problems of items, and `fault`, are in the result. */
export async function parseBatch(
  req: IncomingMessage,
  limits: { body: number; item: number; items: number },
  caller: Caller,
  upload: BatchUpload,
): Promise<ParsedBatch> {
  const items = new Map<number, ParsedItem>();
  const problems = new Map<number, Problem>();
  const hash = createHash('sha256');
  const yieldIfDue = yieldEvery();
  let total = 0;

  function parse(item: SplitItem): void {
    const index = total;
    total += 1;
    if (total > limits.items) {
      throw new Problem(
        'too_many_items',
        `A batch has at most ${String(limits.items)} items. Nothing was accepted. Split it into several batches.`,
      );
    }
    try {
      const found = parseItem(item, limits.item, caller);
      items.set(index, { ...found, proofId: newUuidHex() });
      hash.update(tag(found.lane)).update(found.requestHash, 'hex');
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problems.set(index, error);
      hash.update(tag(INVALID)).update('bytes' in item ? sha256(item.bytes) : item.tooLong);
    }
  }

  async function parseAll(found: SplitItem[]): Promise<void> {
    for (const item of found) {
      parse(item);
      await yieldIfDue();
    }
  }

  try {
    const { type, chunks } = streamBody(req, limits.body, [JSON_ARRAY, JSON_LINES], upload.evicted);
    const splitter = type === JSON_LINES ? lineSplitter(limits.item) : arraySplitter(limits.item);
    for await (const chunk of chunks) {
      await upload.received(chunk.length);
      await parseAll(splitter.push(chunk));
    }
    upload.complete();
    const last = splitter.end();
    if (!(last instanceof Problem)) await parseAll(last);
    const empty = total === 0 ? new Problem('empty_batch') : null;
    const fault = last instanceof Problem ? last : empty;
    return { total, items, problems, itemsHash: hash.digest(), fault };
  } catch (error) {
    throw bodyProblem(error);
  }
}

const INVALID = 0;

/** Separates the request types in the hash of the items; invalid items have a tag of their own. */
const tag = (kind: number): Buffer => Buffer.of(kind);

const sha256 = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest();

/** @throws Problem the same as for a single request with this body */
function parseItem(item: SplitItem, limit: number, caller: Caller): Omit<ParsedItem, 'proofId'> {
  if ('tooLong' in item) {
    throw new Problem('body_too_large', `An item must not be longer than ${String(limit)} bytes.`);
  }
  const value = parseJson(item.bytes);
  const version = isObject(value) ? value['schema_version'] : undefined;
  const type = [EXECUTE, AGENT].find((one) => one.version === version);
  if (type === undefined) throw unknownVersion(value, [EXECUTE.version, AGENT.version]);
  const { body, ...parsed } = parseAdmission(type, value);
  requireAllowed(body, caller);
  return parsed;
}
