/** The origin did not respond, or responded with something else: retry later. */
export class OriginError extends Error {
  override readonly name = 'OriginError';
}

/** A response whose body is still arriving. */
export interface OriginAnswer {
  status: number;
  headers: Headers;
  /** The body's decoded chunks; throws `OriginError` if interrupted. Callers may stop early. */
  chunks(): AsyncGenerator<Uint8Array, void, undefined>;
}

/** Errors of a reused connection that the origin closed (RFC 9112 §9.6): retry once. */
const STALE_CONNECTION = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/** GET requests to one static HTTP origin. Its error messages are public, so they never name the origin. */
export class Origin {
  private readonly inFlight = new Set<AbortController>();
  private closed = false;

  constructor(
    private readonly base: string,
    /** A request fails after this long without a byte. */
    private readonly timeoutMs: number,
    /** A request that is slower than this on average fails too. */
    private readonly minBytesPerSecond: number,
  ) {}

  /** @param maxBytes the largest expected body; it sets the deadline */
  async get<T>(
    path: string,
    headers: Record<string, string>,
    maxBytes: number,
    take: (answer: OriginAnswer) => Promise<T>,
  ): Promise<T> {
    const stop = new AbortController();
    this.inFlight.add(stop);
    const abort = (): void => {
      stop.abort();
    };
    const idle = setTimeout(abort, this.timeoutMs);
    const deadline = setTimeout(abort, this.timeoutMs + (maxBytes / this.minBytesPerSecond) * 1000);
    let response: Response | null = null;
    try {
      response = await this.fetch(path, headers, stop.signal);
      const answer = { status: response.status, headers: response.headers };
      return await take({ ...answer, chunks: () => chunksOf(response!, path, idle) });
    } finally {
      // Cancels an unread body, which closes the connection if the body is still arriving.
      if (response?.bodyUsed === false) await response.body?.cancel().catch(() => undefined);
      clearTimeout(idle);
      clearTimeout(deadline);
      this.inFlight.delete(stop);
    }
  }

  close(): void {
    this.closed = true;
    for (const request of this.inFlight) request.abort();
  }

  private async fetch(
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Response> {
    // No redirects: paths are fixed. No encodings: ranges must address bytes of the file.
    const init: RequestInit = {
      headers: { 'Accept-Encoding': 'identity', ...headers },
      redirect: 'manual',
      signal,
    };
    if (this.closed) throw new OriginError('the source is closed');
    try {
      return await fetch(`${this.base}/${path}`, init).catch((error: unknown) => {
        if (!STALE_CONNECTION.has(codeOf(error))) throw error;
        return fetch(`${this.base}/${path}`, init);
      });
    } catch (cause) {
      const what = signal.aborted ? 'did not answer in time' : 'cannot be reached';
      throw new OriginError(`the origin ${what}`, { cause });
    }
  }
}

export function unexpected(path: string, what: unknown): OriginError {
  return new OriginError(`the origin answered ${String(what)} to ${path}`);
}

async function* chunksOf(
  response: Response,
  path: string,
  idle: NodeJS.Timeout,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for await (const chunk of response.body ?? []) {
      idle.refresh();
      yield chunk as Uint8Array;
    }
  } catch (cause) {
    throw new OriginError(`the transfer of ${path} was interrupted`, { cause });
  }
}

function codeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: unknown } };
  return String(cause?.code);
}
