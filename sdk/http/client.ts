import { SdkError } from '../errors.js';
import { RETRY_DEFAULTS, type CallOptions, type RetryOptions } from '../options.js';
import { httpError, RETRIED_STATUS, sentAt } from './answers.js';
import { attempt, withDeadline, type Answer, type Deadline } from './attempt.js';

export interface HttpRequest {
  method: 'GET' | 'POST' | 'DELETE';
  /** The path after the base URL; no character needs percent-encoding. */
  path: string;
  query?: Record<string, string>;
  body?: Uint8Array;
  /** Media type of the body; default `application/json`. */
  type?: string;
  /** Media type of the response; default `application/json`. */
  accept?: string;
  idempotencyKey?: string;
  /** Statuses for which `read` returns the response; default 200. */
  expected?: readonly number[];
}

/** Each request has the deadline of the options, unless it is a part of a longer call. */
export interface HttpClient {
  /**
   * Retries after a network error, 408, 429, 502, 503 and 504; any other response would not change. The
   * delay is that of `Retry-After`, or a backoff. Gives up at once when the delay exceeds the
   * remaining time.
   */
  send(request: HttpRequest, deadline?: Deadline): Promise<Answer>;
  /** Like `send`, but throws for every unexpected status. */
  read(request: HttpRequest, deadline?: Deadline): Promise<Answer>;
  /** The time of the last response by the clock of the service, or, without a `Date`, by the local clock. */
  answeredAt(): number;
}

export function openHttpClient(
  options: CallOptions,
  base: URL,
  headers: Record<string, string>,
  maxBytes: number,
): HttpClient {
  const retry = validRetry(options.retry);
  const fetcher = options.fetch ?? fetch;
  let answeredAt = 0;
  const send: HttpClient['send'] = async (request, deadline) => {
    if (deadline === undefined) return withDeadline(options, (own) => send(request, own));
    const { method, path, query = {}, body, idempotencyKey } = request;
    const url = new URL(path.slice(1), base);
    url.search = new URLSearchParams(query).toString();
    const sent = {
      ...headers,
      Accept: request.accept ?? 'application/json',
      ...(body !== undefined && { 'Content-Type': request.type ?? 'application/json' }),
      ...(idempotencyKey !== undefined && { 'X-Svc-Idempotency-Key': idempotencyKey }),
    };
    const call = { method, url, headers: sent, body, maxBytes };
    for (let attempts = 1; ; attempts++) {
      const outcome = await attempt(fetcher, call, deadline, retry.attemptTimeoutMs).then(
        (answer) => {
          answeredAt = sentAt(answer.headers) ?? Date.now();
          return RETRIED_STATUS.has(answer.status) ? httpError(answer) : answer;
        },
        (error: unknown) => {
          if (error instanceof SdkError) return error;
          throw error;
        },
      );
      if (!(outcome instanceof SdkError)) return outcome;
      if (!outcome.retryable || deadline.signal.aborted) throw outcome;
      const delay = Math.max(outcome.retryAfterMs ?? 0, backoffMs(attempts, retry, Math.random()));
      if (attempts >= retry.attempts || delay >= deadline.remainingMs()) throw outcome;
      await deadline.sleep(delay);
    }
  };
  return {
    send,
    read: async (request, deadline) => {
      const answer = await send(request, deadline);
      if (!(request.expected ?? [200]).includes(answer.status)) throw httpError(answer);
      return answer;
    },
    answeredAt: () => answeredAt,
  };
}

/**
 * Milliseconds before retry `n` (from 1): doubled each time up to a cap, and drawn from the upper
 * half, so that clients which failed together do not retry together.
 *
 * @param random a number in [0, 1)
 */
export function backoffMs(
  n: number,
  { baseDelayMs, maxDelayMs }: { baseDelayMs: number; maxDelayMs: number },
  random: number,
): number {
  const full = Math.min(maxDelayMs, baseDelayMs * 2 ** Math.min(n - 1, 30));
  return (full * (1 + random)) / 2;
}

/** Rejects NaN: all comparisons with it are false, so retries would never end and never wait. */
function validRetry(given: RetryOptions = {}): Required<RetryOptions> {
  const retry = { ...RETRY_DEFAULTS };
  for (const name of Object.keys(RETRY_DEFAULTS) as (keyof RetryOptions)[]) {
    const value = given[name] ?? RETRY_DEFAULTS[name];
    const least = name === 'attempts' || name === 'attemptTimeoutMs' ? 1 : 0;
    if (typeof value !== 'number' || !(value >= least)) {
      throw new SdkError('invalid_input', `retry.${name} must be at least ${String(least)}`);
    }
    retry[name] = value;
  }
  return retry;
}
