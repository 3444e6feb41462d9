import { LOCATION_PATH, pagePath } from '#protocol/snapshot/location';
import { Origin, OriginError, unexpected, type OriginAnswer } from './origin.js';
import { lookupReads, type ReadLimits } from './lookup-reads.js';
import type { SnapshotSource } from './source.js';

export interface HttpSourceOptions extends ReadLimits {
  /** A request fails after this long without a byte. */
  timeoutMs?: number;
}

const TIMEOUT_MS = 5_000;
/** A slower transfer is aborted. */
const MIN_BYTES_PER_SECOND = 64 * 1024;

const LOCATION_LIMIT = 1024 * 1024;
const TILE_LIMIT = 256 * 32;
/** Longest bundle: 256 entries, each after its length in two bytes (C2SP tlog-tiles). */
const BUNDLE_LIMIT = 256 * (2 + 0xffff);
/** A page has at most 128 records, whose histories are long only after very many failures. */
const PAGE_LIMIT = 8 * 1024 * 1024;

/**
 * The last fetched location. nginx derives entity tags from mtime seconds and length, so two
 * locations of the same second can share a tag. A location fetched within the second of its change
 * is fetched again without its tag (RFC 9110 §8.8.2.2).
 */
interface KnownLocation {
  bytes: Uint8Array;
  etag: string | null;
  /** Last-Modified in milliseconds since 1970; NaN without the header. */
  changed: number;
  isSettled: boolean;
}

/** Callers verify every byte, so origin and network need not be trusted. */
export function httpSource(base: string, options: HttpSourceOptions = {}): SnapshotSource {
  const { timeoutMs = TIMEOUT_MS } = options;
  const origin = new Origin(base, timeoutMs, MIN_BYTES_PER_SECOND);
  const run = lookupReads(options);
  let location: KnownLocation | null = null;

  async function fetchLocation(): Promise<Uint8Array | null> {
    const known = location;
    const headers: Record<string, string> = { 'Cache-Control': 'no-cache' };
    if (known?.etag) headers['If-None-Match'] = known.etag;
    const fetched = await origin.get(LOCATION_PATH, headers, LOCATION_LIMIT, async (answer) => {
      const { status } = answer;
      if (status === 304 && known !== null) {
        return known.isSettled || !isSettled(known.changed, answer) ? known : 'refetch';
      }
      if (status === 404) return null;
      if (status !== 200) throw unexpected(LOCATION_PATH, status);
      return knownLocation(answer, await whole(answer, LOCATION_PATH, LOCATION_LIMIT));
    });
    location = fetched === 'refetch' ? null : fetched;
    return fetched === 'refetch' ? fetchLocation() : (fetched?.bytes ?? null);
  }

  function fetchFile(path: string, limit: number): Promise<Uint8Array | null> {
    return origin.get(path, {}, limit, async (answer) => {
      if (answer.status === 404) return null;
      if (answer.status !== 200) throw unexpected(path, answer.status);
      return whole(answer, path, limit);
    });
  }

  function file(path: string, limit: number, isUrgent: boolean): Promise<Uint8Array | null> {
    return run(path, isUrgent, () => fetchFile(path, limit));
  }

  return {
    kind: 'http',
    location: fetchLocation,
    forgetLocation() {
      location = null;
    },
    logFile: (path, isUrgent = false) => {
      const limit = path.startsWith('tile/entries/') ? BUNDLE_LIMIT : TILE_LIMIT;
      return file(path, limit, isUrgent);
    },
    async page(page, isUrgent = false) {
      const path = pagePath(page);
      const bytes = await file(path, PAGE_LIMIT, isUrgent);
      if (bytes === null) throw unexpected(path, 404);
      return bytes;
    },
    close: () => origin.close(),
  };
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

function knownLocation(answer: OriginAnswer, bytes: Uint8Array): KnownLocation {
  const { headers } = answer;
  const changed = Date.parse(headers.get('last-modified') ?? '');
  const etag = headers.get('etag');
  return { bytes, etag, changed, isSettled: isSettled(changed, answer) };
}

/** Whether the response was sent a second or more after the last change, or lacks a header. */
function isSettled(changed: number, { headers }: OriginAnswer): boolean {
  return !(Date.parse(headers.get('date') ?? '') - changed < 1000);
}
