/** The origin did not answer, or not with what was asked for: try again later. */
export class OriginError extends Error {
  override readonly name = 'OriginError';
}

/** An answer whose body is still coming. */
export interface OriginAnswer {
  status: number;
  headers: Headers;
  /**
   * The body's chunks, decoded if it was encoded; throws `OriginError` when it breaks off. Whoever
   * wants only the beginning may leave the loop.
   */
  chunks(): AsyncGenerator<Uint8Array, void, undefined>;
}

/** Connections broke under a request because the origin had just closed them (RFC 9112 §9.6). */
const STALE_CONNECTION = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/** GET requests to one static http origin. Messages of its errors are public: they do not name it. */
export class Origin {
  private readonly underWay = new Set<AbortController>();
  private closed = false;

  constructor(
    private readonly base: string,
    /** Without a byte for so long, a request has failed. */
    private readonly timeoutMs: number,
    /** Bytes a second; a request that is slower than this on the whole has failed too. */
    private readonly slowest: number,
  ) {}

  /**
   * One request, and what `take` makes of its answer.
   *
   * @param most the bytes of body that are wanted at most: they set how long it may take
   */
  async get<T>(
    path: string,
    headers: Record<string, string>,
    most: number,
    take: (answer: OriginAnswer) => Promise<T>,
  ): Promise<T> {
    const stop = new AbortController();
    this.underWay.add(stop);
    const abort = (): void => {
      stop.abort();
    };
    const idle = setTimeout(abort, this.timeoutMs);
    const whole = setTimeout(abort, this.timeoutMs + (most / this.slowest) * 1000);
    let response: Response | null = null;
    try {
      response = await this.fetch(path, headers, stop.signal);
      const answer = { status: response.status, headers: response.headers };
      return await take({ ...answer, chunks: () => chunksOf(response!, path, idle) });
    } finally {
      // What nobody read. If it has not arrived by now, its connection goes with it.
      if (response?.bodyUsed === false) await response.body?.cancel().catch(() => undefined);
      clearTimeout(idle);
      clearTimeout(whole);
      this.underWay.delete(stop);
    }
  }

  close(): void {
    this.closed = true;
    for (const request of this.underWay) request.abort();
  }

  private async fetch(
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Response> {
    // A snapshot's files are where it says, and ranges are of files, not of encodings of them.
    const init: RequestInit = {
      headers: { 'Accept-Encoding': 'identity', ...headers },
      redirect: 'manual',
      signal,
    };
    if (this.closed) throw new OriginError('nothing is read any more');
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
    throw new OriginError(`${path} broke off`, { cause });
  }
}

function codeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: unknown } };
  return String(cause?.code);
}
