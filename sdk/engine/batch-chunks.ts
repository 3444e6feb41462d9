import { hashHex, nobleSha256 } from '../../protocol/hash.js';
import { concat, utf8 } from '../../protocol/bytes.js';
import { SdkError } from '../errors.js';
import { canonicalBody } from './envelope.js';

/** As much of the input as goes into one batch. */
export interface Chunk {
  /** Place of its first item in the whole input, from 0. */
  start: number;
  /** The SHA-256 of each item's canonical bytes: its `request_hash`. */
  hashes: string[];
  /** NDJSON, a canonical item a line. */
  body: Uint8Array;
}

export interface ChunkLimits {
  items: number;
  bytes: number;
}

const NEWLINE = utf8('\n');

/**
 * Cuts the input into bodies within the limits, holding no more of it than one of them. Equal inputs
 * are cut equally, so that a repeated run sends the batches that are there already.
 */
export async function* chunksOf(
  items: Iterable<object> | AsyncIterable<object>,
  limits: ChunkLimits,
): AsyncGenerator<Chunk, void, undefined> {
  let start = 0;
  let lines: Uint8Array[] = [];
  let hashes: string[] = [];
  let bytes = 0;
  const cut = (): Chunk => {
    const chunk = { start, hashes, body: concat(...lines) };
    start += hashes.length;
    [lines, hashes, bytes] = [[], [], 0];
    return chunk;
  };
  for await (const item of items) {
    const line = canonicalBody(item);
    if (line.length + 1 > limits.bytes) {
      const pointer = `/${String(start + hashes.length)}`;
      throw new SdkError('invalid_input', `${pointer}: is longer than a batch`, { pointer });
    }
    if (hashes.length === limits.items || bytes + line.length + 1 > limits.bytes) yield cut();
    lines.push(line, NEWLINE);
    hashes.push(hashHex(nobleSha256, line));
    bytes += line.length + 1;
  }
  if (hashes.length > 0) yield cut();
}
