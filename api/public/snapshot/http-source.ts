import { malformed } from '#protocol/snapshot/malformed';
import type { SegmentRead } from '#protocol/snapshot/find';
import { MANIFEST_PATH, segmentPath } from '#protocol/snapshot/manifest';
import { Semaphore } from './semaphore.js';
import { Origin, OriginError, unexpected, type OriginAnswer } from './origin.js';
import { PieceCache } from './piece-cache.js';
import type { SnapshotSource } from './source.js';

export interface HttpSourceOptions {
  /** Memory for pieces of segments that are kept, in bytes. */
  cacheBytes?: number;
  /** Without a byte for so long, a request has failed. */
  timeoutMs?: number;
  /** Requests to the origin at a time, for lookups; following has its own. */
  lanes?: number;
  /** Reads that may wait for a lane; more fail at once. */
  waiting?: number;
}

const CACHE_BYTES = 64 * 1024 * 1024;
const TIMEOUT_MS = 5_000;
const LANES = 32;
const WAITING = 1024;
/** Bytes a second: a slower transfer is broken off, and goes on from there with the next try. */
const SLOWEST = 64 * 1024;

const MANIFEST_LIMIT = 1024 * 1024;
const TILE_LIMIT = 256 * 32;
/** 256 entries with their lengths, two bytes each (C2SP tlog-tiles). */
const BUNDLE_LIMIT = 256 * (2 + 0xffff);

/** What is longer is not lost when its transfer breaks off. */
const RESUMED_FROM = 16 * 1024;

/**
 * The manifest as it was last. Many servers make an entity tag of the second of the last change and
 * the length (nginx does), so that of two manifests of one second the later may look unchanged. What
 * was fetched within that second is fetched once more when it is over (RFC 9110 §8.8.2.2).
 */
interface KnownManifest {
  bytes: Uint8Array;
  etag: string | null;
  /** Milliseconds since 1970; NaN when it was not told. */
  changed: number;
  isSettled: boolean;
}

/** A piece that is on its way here. */
interface Transfer {
  name: string;
  bytes: Uint8Array;
  /** So much of its beginning is there. */
  have: number;
}

/**
 * A snapshot on any static http origin. Index parts are fetched when they are new; of bodies only
 * the piece that a lookup needs, by range, and the pieces that were used last are kept. All of it
 * is checked by whoever asks for it, so the origin and the way to it need not be trusted.
 */
export function httpSource(base: string, options: HttpSourceOptions = {}): SnapshotSource {
  const { timeoutMs = TIMEOUT_MS } = options;
  const origin = new Origin(base, timeoutMs, SLOWEST);
  const cache = new PieceCache(options.cacheBytes ?? CACHE_BYTES);
  const lanes = new Semaphore({
    width: options.lanes ?? LANES,
    room: options.waiting ?? WAITING,
    patienceMs: timeoutMs,
    busy: () => new OriginError('too many wait for the origin'),
  });
  const underWay = new Map<string, Promise<unknown>>();
  let manifest: KnownManifest | null = null;
  let brokenOff: Transfer | null = null;

  /** Many who want the same at the same time get it by one request. */
  function shared<T>(name: string, fetchIt: () => Promise<T>): Promise<T> {
    let fetching = underWay.get(name) as Promise<T> | undefined;
    if (fetching === undefined) {
      fetching = fetchIt().finally(() => underWay.delete(name));
      underWay.set(name, fetching);
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
        return known.isSettled || !isSettled(known.changed, answer) ? known : 'ask again';
      }
      if (status === 404) return null;
      if (status !== 200) throw unexpected(MANIFEST_PATH, status);
      return knownManifest(answer, await whole(answer, MANIFEST_PATH, MANIFEST_LIMIT));
    });
    manifest = fetched === 'ask again' ? null : fetched;
    return fetched === 'ask again' ? fetchManifest() : (fetched?.bytes ?? null);
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
      brokenOff?.name === name
        ? brokenOff
        : { name, bytes: new Uint8Array(wanted.length), have: 0 };
    if (brokenOff === transfer) brokenOff = null;
    try {
      await receive(origin, wanted, transfer);
    } catch (error) {
      if (wanted.length > RESUMED_FROM && transfer.have > 0) brokenOff = transfer;
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
      isUrgent ? fetchFile(path) : shared(path, () => lanes.run(() => fetchFile(path))),
    read(wanted) {
      const name = nameOf(wanted);
      return (
        cache.get(name) ??
        shared(name, async () => {
          const bytes = await lanes.run(() => fetchPiece(wanted));
          cache.put(name, bytes);
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

/** Asks for what `transfer` lacks, and adds it as it comes. */
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
      // An origin without ranges sends all of it: what is before and behind is not kept.
      const announced = answer.headers.get('content-length');
      if (announced !== null && Number(announced) !== bytes && !isEncoded(answer)) {
        throw malformed('a segment has not the length that is pinned');
      }
      await append(answer, transfer, first);
    } else throw unexpected(path, status);
  });
  if (transfer.have !== length) throw new OriginError(`${path} ended early`);
}

/** Adds the body to a transfer, without its first `skip` bytes, until the transfer is whole. */
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

/** Whether the second of the last change was over when this was answered, as far as is told. */
function isSettled(changed: number, { headers }: OriginAnswer): boolean {
  return !(Date.parse(headers.get('date') ?? '') - changed < 1000);
}
