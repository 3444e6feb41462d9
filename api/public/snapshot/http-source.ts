import { Limiter } from '#runtime/concurrency/limiter';
import { ByteCache } from '#runtime/process/byte-cache';
import { malformed } from '#protocol/snapshot/malformed';
import type { SegmentRead } from '#protocol/snapshot/find';
import { MANIFEST_PATH, segmentPath } from '#protocol/snapshot/manifest';
import { Origin, OriginError, unexpected, type OriginAnswer } from './origin.js';
import type { SnapshotSource } from './source.js';

export interface HttpSourceOptions {
  /** Memory for cached pieces of segments, in bytes. */
  cacheBytes?: number;
  /** A request fails after this long without a byte. */
  timeoutMs?: number;
  /** Concurrent origin requests for lookups; the poller is not limited. */
  concurrency?: number;
  /** Reads that may queue; further ones fail at once. */
  maxQueue?: number;
}

const CACHE_BYTES = 64 * 1024 * 1024;
/** Estimated memory, in bytes, of a cached piece besides its content. */
const PIECE_OVERHEAD = 512;
const TIMEOUT_MS = 5_000;
const CONCURRENCY = 32;
const MAX_QUEUE = 1024;
/** A slower transfer is aborted; the next attempt resumes it. */
const MIN_BYTES_PER_SECOND = 64 * 1024;

const MANIFEST_LIMIT = 1024 * 1024;
const TILE_LIMIT = 256 * 32;
/** Longest bundle: 256 entries, each after its length in two bytes (C2SP tlog-tiles). */
const BUNDLE_LIMIT = 256 * (2 + 0xffff);

/** Interrupted transfers of longer pieces are resumed. */
const MIN_RESUMABLE_BYTES = 16 * 1024;

/**
 * The last fetched manifest. nginx derives entity tags from mtime seconds and length, so two
 * manifests of the same second can share a tag. A manifest fetched within the second of its change
 * is fetched again without its tag (RFC 9110 §8.8.2.2).
 */
interface KnownManifest {
  bytes: Uint8Array;
  etag: string | null;
  /** Last-Modified in milliseconds since 1970; NaN without the header. */
  changed: number;
  isSettled: boolean;
}

/** A partly received piece. */
interface Transfer {
  name: string;
  bytes: Uint8Array;
  /** Number of bytes received. */
  have: number;
}

/**
 * A snapshot on any static HTTP origin. Fetches each index part once, and body pieces by range on demand
 * with an LRU cache. Callers verify every byte, so origin and network need not be trusted.
 */
export function httpSource(base: string, options: HttpSourceOptions = {}): SnapshotSource {
  const { timeoutMs = TIMEOUT_MS } = options;
  const origin = new Origin(base, timeoutMs, MIN_BYTES_PER_SECOND);
  const cache = new ByteCache<Uint8Array>(options.cacheBytes ?? CACHE_BYTES);
  const { concurrency = CONCURRENCY, maxQueue = MAX_QUEUE } = options;
  // When the origin hangs, a lookup waits at most once for a slot and once for its own request.
  const limiter = new Limiter({
    total: concurrency,
    perOwner: concurrency,
    maxWaiting: maxQueue,
    timeoutMs,
  });
  const limited = <T>(read: () => Promise<T>): Promise<T> => limiter.run(0, read);
  const inFlight = new Map<string, Promise<unknown>>();
  let manifest: KnownManifest | null = null;
  let interrupted: Transfer | null = null;

  /** Concurrent reads of the same name share one request. */
  function shared<T>(name: string, fetchIt: () => Promise<T>): Promise<T> {
    let fetching = inFlight.get(name) as Promise<T> | undefined;
    if (fetching === undefined) {
      fetching = fetchIt().finally(() => inFlight.delete(name));
      inFlight.set(name, fetching);
    }
    return fetching;
  }

  async function fetchManifest(): Promise<Uint8Array | null> {
    const known = manifest;
    const headers: Record<string, string> = { 'Cache-Control': 'no-cache' };
    if (known?.etag) headers['If-None-Match'] = known.etag;
    const fetched = await origin.get(MANIFEST_PATH, headers, MANIFEST_LIMIT, async (answer) => {
      const { status } = answer;
      if (status === 304 && known !== null) {
        return known.isSettled || !isSettled(known.changed, answer) ? known : 'refetch';
      }
      if (status === 404) return null;
      if (status !== 200) throw unexpected(MANIFEST_PATH, status);
      return knownManifest(answer, await whole(answer, MANIFEST_PATH, MANIFEST_LIMIT));
    });
    manifest = fetched === 'refetch' ? null : fetched;
    return fetched === 'refetch' ? fetchManifest() : (fetched?.bytes ?? null);
  }

  function fetchFile(path: string): Promise<Uint8Array | null> {
    const limit = path.startsWith('tile/entries/') ? BUNDLE_LIMIT : TILE_LIMIT;
    return origin.get(path, {}, limit, async (answer) => {
      if (answer.status === 404) return null;
      if (answer.status !== 200) throw unexpected(path, answer.status);
      return whole(answer, path, limit);
    });
  }

  async function fetchPiece(wanted: SegmentRead): Promise<Uint8Array> {
    const name = nameOf(wanted);
    const transfer =
      interrupted?.name === name
        ? interrupted
        : { name, bytes: new Uint8Array(wanted.length), have: 0 };
    if (interrupted === transfer) interrupted = null;
    try {
      await receive(origin, wanted, transfer);
    } catch (error) {
      if (wanted.length > MIN_RESUMABLE_BYTES && transfer.have > 0) interrupted = transfer;
      throw error;
    }
    return transfer.bytes;
  }

  return {
    kind: 'http',
    manifest: fetchManifest,
    forgetManifest() {
      manifest = null;
    },
    load: (wanted) => shared(`load ${nameOf(wanted)}`, () => fetchPiece(wanted)),
    logFile: (path, isUrgent = false) =>
      isUrgent ? fetchFile(path) : shared(path, () => limited(() => fetchFile(path))),
    read(wanted) {
      const name = nameOf(wanted);
      return (
        cache.get(name) ??
        shared(name, async () => {
          const bytes = await limited(() => fetchPiece(wanted));
          // `bytes` owns its memory: a view would keep the larger buffer alive.
          cache.put(name, bytes, bytes.length + PIECE_OVERHEAD);
          return bytes;
        })
      );
    },
    forget: (wrong) => cache.delete(nameOf(wrong)),
    close: () => origin.close(),
  };
}

function nameOf({ segment, offset, length }: SegmentRead): string {
  return `${segment}/${offset}/${length}`;
}

/** Requests the bytes that `transfer` lacks and appends them as they arrive. */
async function receive(origin: Origin, wanted: SegmentRead, transfer: Transfer): Promise<void> {
  const { segment, bytes, offset, length } = wanted;
  const path = segmentPath(segment);
  const [first, last] = [offset + transfer.have, offset + length - 1];
  const headers = { Range: `bytes=${first}-${last}` };
  await origin.get(path, headers, last + 1 - first, async (answer) => {
    const { status } = answer;
    if (status === 206) {
      const range = answer.headers.get('content-range');
      if (range !== `bytes ${first}-${last}/${bytes}` || isEncoded(answer)) {
        throw unexpected(path, `range ${range}`);
      }
      await append(answer, transfer, 0);
    } else if (status === 200) {
      // An origin without range support sends the whole segment: skip the bytes around the piece.
      const announced = answer.headers.get('content-length');
      if (announced !== null && Number(announced) !== bytes && !isEncoded(answer)) {
        throw malformed('a segment does not have the pinned length');
      }
      await append(answer, transfer, first);
    } else throw unexpected(path, status);
  });
  if (transfer.have !== length) throw new OriginError(`${path} ended early`);
}

/** Appends the body to a transfer, without its first `skip` bytes, until the transfer is complete. */
async function append(answer: OriginAnswer, transfer: Transfer, skip: number): Promise<void> {
  for await (const chunk of answer.chunks()) {
    const wanted = chunk.subarray(skip);
    skip -= chunk.length - wanted.length;
    const taken = wanted.subarray(0, transfer.bytes.length - transfer.have);
    transfer.bytes.set(taken, transfer.have);
    transfer.have += taken.length;
    if (transfer.have === transfer.bytes.length) return;
  }
}

async function whole(answer: OriginAnswer, path: string, limit: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of answer.chunks()) {
    length += chunk.length;
    if (length > limit) throw new OriginError(`${path} is longer than expected`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

function isEncoded({ headers }: OriginAnswer): boolean {
  return (headers.get('content-encoding') ?? 'identity') !== 'identity';
}

function knownManifest(answer: OriginAnswer, bytes: Uint8Array): KnownManifest {
  const { headers } = answer;
  const changed = Date.parse(headers.get('last-modified') ?? '');
  const etag = headers.get('etag');
  return { bytes, etag, changed, isSettled: isSettled(changed, answer) };
}

/** Whether a response is later than the manifest's last second of change, or lacks a header. */
function isSettled(changed: number, { headers }: OriginAnswer): boolean {
  return !(Date.parse(headers.get('date') ?? '') - changed < 1000);
}
