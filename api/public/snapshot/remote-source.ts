import { LOCATION_PATH, pagePath } from '#protocol/snapshot/location';
import { Limiter } from '#runtime/concurrency';
import { BodyTooLongError, readAtMost } from '#runtime/http/read-at-most';
import { isBucket, openStore } from '#runtime/store/open';
import { StoreError, type SnapshotStore } from '#runtime/store/store';
import { directorySource, type SnapshotSource } from './source.js';

/** Opens the snapshot in a directory, in a bucket or below an http or https URL. */
export async function snapshotSourceOf(place: string): Promise<SnapshotSource> {
  if (isBucket(place)) return storeSource(await openStore(place));
  return /^https?:/i.test(place) ? httpSource(place) : directorySource(place);
}

export interface HttpSourceOptions {
  /** Longest time in milliseconds that a read waits for a slot, and that a request receives no byte. */
  timeoutMs?: number;
  /** Maximum number of concurrent requests for lookups; requests of the poller are not limited. */
  concurrency?: number;
  /** Maximum number of queued reads; further reads fail at once. */
  maxQueue?: number;
}

const TIMEOUT_MS = 5_000;
const CONCURRENCY = 32;
const MAX_QUEUE = 1024;

/** Runs the reads of a remote snapshot. Lookups of the same file share a request, which waits for a slot. */
function lookupReads(limits: HttpSourceOptions) {
  const { timeoutMs = TIMEOUT_MS, concurrency = CONCURRENCY, maxQueue = MAX_QUEUE } = limits;
  // When the origin hangs, a lookup waits at most once for a slot and once for its own request.
  const limiter = new Limiter({
    total: concurrency,
    perOwner: concurrency,
    maxWaiting: maxQueue,
    timeoutMs,
  });
  const inFlight = new Map<string, Promise<Uint8Array | null>>();
  return (
    path: string,
    isUrgent: boolean,
    fetchIt: () => Promise<Uint8Array | null>,
  ): Promise<Uint8Array | null> => {
    if (isUrgent) return fetchIt();
    let fetching = inFlight.get(path);
    if (fetching === undefined) {
      fetching = limiter.run(0, fetchIt).finally(() => inFlight.delete(path));
      inFlight.set(path, fetching);
    }
    return fetching;
  };
}

/** Smallest average rate: a slower request fails. */
const MIN_BYTES_PER_SECOND = 64 * 1024;

const LOCATION_LIMIT = 1024 * 1024;
const TILE_LIMIT = 256 * 32;
/** Longest bundle: 256 entries, each after its length in two bytes (C2SP tlog-tiles). */
const BUNDLE_LIMIT = 256 * (2 + 0xffff);
/**
 * Larger than every page: a page has at most 128 records, with long histories only after very many failed
 * verifications.
 */
const PAGE_LIMIT = 8 * 1024 * 1024;

/** Errors of a reused connection that the origin closed (RFC 9112 §9.6): retry once. */
const STALE_CONNECTION = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/**
 * Callers verify every byte, so origin and network need not be trusted. Messages of errors are public,
 * so they never name the origin.
 */
export function httpSource(base: string, options: HttpSourceOptions = {}): SnapshotSource {
  const { timeoutMs = TIMEOUT_MS } = options;
  const run = lookupReads(options);
  const inFlight = new Set<AbortController>();
  let isClosed = false;

  /**
   * @param limit the largest expected body, in bytes, from which the deadline follows
   * @returns null if the origin has no such file
   */
  async function get(
    path: string,
    limit: number,
    headers: Record<string, string> = {},
  ): Promise<Uint8Array | null> {
    const stop = new AbortController();
    inFlight.add(stop);
    const abort = (): void => stop.abort();
    const idle = setTimeout(abort, timeoutMs);
    const deadline = setTimeout(abort, timeoutMs + (limit / MIN_BYTES_PER_SECOND) * 1000);
    let response: Response | null = null;
    try {
      response = await request(path, headers, stop.signal);
      const { status } = response;
      if (status === 200) return await bodyOf(response, path, limit, idle);
      if (status === 404) return null;
      throw unexpected(path, status);
    } finally {
      // Cancels an unread body, which closes the connection if the body is still arriving.
      if (response?.bodyUsed === false) await response.body?.cancel().catch(() => undefined);
      clearTimeout(idle);
      clearTimeout(deadline);
      inFlight.delete(stop);
    }
  }

  async function request(
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Response> {
    // No redirects: paths are fixed. No encodings: nginx weakens the ETag of a compressed file.
    const init: RequestInit = {
      headers: { 'Accept-Encoding': 'identity', ...headers },
      redirect: 'manual',
      signal,
    };
    if (isClosed) throw new Error('the snapshot source is closed');
    try {
      return await fetch(`${base}/${path}`, init).catch((error: unknown) => {
        if (!STALE_CONNECTION.has(codeOf(error))) throw error;
        return fetch(`${base}/${path}`, init);
      });
    } catch (cause) {
      const what = signal.aborted ? 'did not answer in time' : 'cannot be reached';
      throw new Error(`the origin ${what}`, { cause });
    }
  }

  return {
    kind: 'http',
    // Sends no `If-None-Match`: many servers derive ETags from whole seconds, and the file changes more often.
    location: () => get(LOCATION_PATH, LOCATION_LIMIT, { 'Cache-Control': 'no-cache' }),
    logFile: (path, isUrgent = false) => {
      const limit = path.startsWith('tile/entries/') ? BUNDLE_LIMIT : TILE_LIMIT;
      return run(path, isUrgent, () => get(path, limit));
    },
    async page(page, isUrgent = false) {
      const path = pagePath(page);
      const bytes = await run(path, isUrgent, () => get(path, PAGE_LIMIT));
      if (bytes === null) throw unexpected(path, 404);
      return bytes;
    },
    close() {
      isClosed = true;
      for (const one of inFlight) one.abort();
    },
  };
}

async function bodyOf(
  response: Response,
  path: string,
  limit: number,
  idle: NodeJS.Timeout,
): Promise<Uint8Array> {
  try {
    return await readAtMost(response.body, limit, () => idle.refresh());
  } catch (cause) {
    if (cause instanceof BodyTooLongError)
      throw new Error(`${path} is longer than expected`, { cause });
    throw new Error(`the transfer of ${path} was interrupted`, { cause });
  }
}

const unexpected = (path: string, status: number): Error =>
  new Error(`the origin answered ${status} to ${path}`);

function codeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: unknown } };
  return String(cause?.code);
}

/** A snapshot in a bucket. Callers verify every byte. */
function storeSource(store: SnapshotStore): SnapshotSource {
  const run = lookupReads({});
  const read = (path: string, isUrgent: boolean): Promise<Uint8Array | null> =>
    run(path, isUrgent, () => store.read(path));
  return {
    kind: 'bucket',
    location: () => store.read(LOCATION_PATH),
    logFile: (path, isUrgent = false) => read(path, isUrgent),
    async page(page, isUrgent = false) {
      const path = pagePath(page);
      const bytes = await read(path, isUrgent);
      if (bytes === null) throw new StoreError(`${store.where} has no ${path}`);
      return bytes;
    },
    close: () => undefined,
  };
}
