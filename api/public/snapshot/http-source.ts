import { LOCATION_PATH, pagePath } from '#protocol/snapshot/location';
import { BodyTooLongError, readAtMost } from '#runtime/http/read-at-most';
import { lookupReads, type ReadLimits } from './lookup-reads.js';
import type { SnapshotSource } from './source.js';

export interface HttpSourceOptions extends ReadLimits {
  /** A request fails after this many milliseconds without a byte. */
  timeoutMs?: number;
}

const TIMEOUT_MS = 5_000;
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

interface OriginAnswer {
  status: number;
  /** The body; null unless the status is 200. */
  bytes: Uint8Array | null;
}

/**
 * Callers verify every byte, so origin and network need not be trusted. Messages of errors are public,
 * so they never name the origin.
 */
export function httpSource(base: string, options: HttpSourceOptions = {}): SnapshotSource {
  const { timeoutMs = TIMEOUT_MS } = options;
  const run = lookupReads(options);
  const inFlight = new Set<AbortController>();
  let isClosed = false;

  /** @param limit the largest expected body, in bytes, from which the deadline follows */
  async function get(
    path: string,
    limit: number,
    headers: Record<string, string> = {},
  ): Promise<OriginAnswer> {
    const stop = new AbortController();
    inFlight.add(stop);
    const abort = (): void => stop.abort();
    const idle = setTimeout(abort, timeoutMs);
    const deadline = setTimeout(abort, timeoutMs + (limit / MIN_BYTES_PER_SECOND) * 1000);
    let response: Response | null = null;
    try {
      response = await request(path, headers, stop.signal);
      const { status } = response;
      const bytes = status === 200 ? await bodyOf(response, path, limit, idle) : null;
      return { status, bytes };
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

  /** Sends no `If-None-Match`: many servers derive ETags from whole seconds, and the file changes more often. */
  async function fetchLocation(): Promise<Uint8Array | null> {
    const { status, bytes } = await get(LOCATION_PATH, LOCATION_LIMIT, {
      'Cache-Control': 'no-cache',
    });
    if (bytes === null && status !== 404) throw unexpected(LOCATION_PATH, status);
    return bytes;
  }

  function file(path: string, limit: number, isUrgent: boolean): Promise<Uint8Array | null> {
    return run(path, isUrgent, async () => {
      const { status, bytes } = await get(path, limit);
      if (bytes === null && status !== 404) throw unexpected(path, status);
      return bytes;
    });
  }

  return {
    kind: 'http',
    location: fetchLocation,
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
