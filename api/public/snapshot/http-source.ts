import { malformed } from '#protocol/snapshot/malformed';
import type { SegmentRead } from '#protocol/snapshot/find';
import { MANIFEST_PATH, segmentPath } from '#protocol/snapshot/manifest';
import type { SnapshotSource } from './source.js';

/** The origin did not answer, or not with what was asked for: try again later. */
export class OriginError extends Error {
  override readonly name = 'OriginError';
}

export interface HttpSourceOptions {
  /** Pieces of segments that are kept, in bytes. */
  cacheBytes?: number;
  timeoutMs?: number;
}

const CACHE_BYTES = 64 * 1024 * 1024;
const TIMEOUT_MS = 5_000;
/** No file of the log, and no manifest, is larger. */
const FILE_LIMIT = 32 * 1024 * 1024;

/**
 * A snapshot on any static http origin. Index parts are fetched when they are new; of bodies only
 * the piece that a lookup needs, by range, and the pieces that were used last are kept. All of it
 * is checked by whoever asks for it, so the origin and the way to it need not be trusted.
 */
export function httpSource(origin: string, options: HttpSourceOptions = {}): SnapshotSource {
  const { timeoutMs = TIMEOUT_MS } = options;
  const cache = new PieceCache(options.cacheBytes ?? CACHE_BYTES);
  const underWay = new Map<string, Promise<Uint8Array>>();
  const stopping = new AbortController();
  let manifest: { bytes: Uint8Array; validators: Record<string, string> } | null = null;

  async function get(path: string, headers: Record<string, string>): Promise<Response> {
    try {
      return await fetch(`${origin}/${path}`, {
        // Ranges are of the file as it is, not of an encoding of it.
        headers: { 'Accept-Encoding': 'identity', ...headers },
        redirect: 'error',
        signal: AbortSignal.any([stopping.signal, AbortSignal.timeout(timeoutMs)]),
      });
    } catch (cause) {
      throw new OriginError(`${origin} cannot be reached`, { cause });
    }
  }

  async function wholeFile(path: string): Promise<Uint8Array | null> {
    const response = await get(path, {});
    if (response.status === 404) return discard(response, null);
    if (response.status !== 200) throw unexpected(path, await discard(response, response.status));
    return body(response, FILE_LIMIT);
  }

  async function piece({ segment, bytes, offset, length }: SegmentRead): Promise<Uint8Array> {
    const path = segmentPath(segment);
    const response = await get(path, { Range: `bytes=${offset}-${offset + length - 1}` });
    if (response.status === 206) {
      const range = response.headers.get('content-range');
      if (range !== `bytes ${offset}-${offset + length - 1}/${bytes}`) {
        throw unexpected(path, await discard(response, `range ${range}`));
      }
      return exactly(await body(response, length), length);
    }
    if (response.status !== 200) throw unexpected(path, await discard(response, response.status));
    // An origin without ranges sends all of it.
    const all = exactly(await body(response, bytes), bytes);
    return all.slice(offset, offset + length);
  }

  return {
    async manifest() {
      const response = await get(MANIFEST_PATH, {
        'Cache-Control': 'no-cache',
        ...manifest?.validators,
      });
      if (response.status === 304 && manifest !== null) return discard(response, manifest.bytes);
      if (response.status === 404) return discard(response, null);
      if (response.status !== 200) {
        throw unexpected(MANIFEST_PATH, await discard(response, response.status));
      }
      const etag = response.headers.get('etag');
      manifest = {
        bytes: await body(response, FILE_LIMIT),
        validators: etag === null ? {} : { 'If-None-Match': etag },
      };
      return manifest.bytes;
    },
    logFile: wholeFile,
    read(wanted) {
      const name = `${wanted.segment}/${wanted.offset}/${wanted.length}`;
      const known = cache.get(name);
      if (known !== undefined) return known;
      let reading = underWay.get(name);
      if (reading === undefined) {
        reading = piece(wanted)
          .then((bytes) => {
            cache.put(name, bytes);
            return bytes;
          })
          .finally(() => underWay.delete(name));
        underWay.set(name, reading);
      }
      return reading;
    },
    forget() {
      cache.clear();
      manifest = null;
    },
    close: () => stopping.abort(),
  };
}

/** The pieces that were used last, up to a number of bytes. */
class PieceCache {
  private readonly pieces = new Map<string, Uint8Array>();
  private bytes = 0;

  constructor(private readonly limit: number) {}

  get(name: string): Uint8Array | undefined {
    const piece = this.pieces.get(name);
    if (piece === undefined) return undefined;
    this.pieces.delete(name);
    this.pieces.set(name, piece);
    return piece;
  }

  clear(): void {
    this.pieces.clear();
    this.bytes = 0;
  }

  put(name: string, piece: Uint8Array): void {
    // What is large is what a reader keeps anyway, once it has taken it in.
    if (piece.length > this.limit / 16) return;
    this.pieces.set(name, piece);
    this.bytes += piece.length;
    for (const [oldest, { length }] of this.pieces) {
      if (this.bytes <= this.limit) return;
      this.pieces.delete(oldest);
      this.bytes -= length;
    }
  }
}

async function body(response: Response, limit: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of response.body ?? []) {
      const bytes = chunk as Uint8Array;
      length += bytes.length;
      if (length > limit) throw new OriginError(`${response.url} is longer than expected`);
      chunks.push(bytes);
    }
  } catch (cause) {
    if (cause instanceof OriginError) throw cause;
    throw new OriginError(`${response.url} broke off`, { cause });
  }
  return Buffer.concat(chunks, length);
}

function exactly(bytes: Uint8Array, length: number): Uint8Array {
  if (bytes.length !== length) throw malformed('a segment has not the length that is pinned');
  return bytes;
}

/** Gives the connection back before going on. */
async function discard<T>(response: Response, value: T): Promise<T> {
  await response.body?.cancel();
  return value;
}

function unexpected(path: string, what: unknown): OriginError {
  return new OriginError(`the origin answered ${String(what)} to ${path}`);
}
