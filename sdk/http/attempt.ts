import { concat } from '../../protocol/bytes.js';
import { SdkError } from '../errors.js';
import { DEFAULT_TIMEOUT_MS, type CallOptions } from '../options.js';

export interface HttpCall {
  method: 'GET' | 'POST' | 'DELETE';
  url: URL;
  headers: Record<string, string>;
  body?: Uint8Array | undefined;
  maxBytes: number;
}

export interface Answer {
  status: number;
  headers: Headers;
  bytes: Uint8Array;
}

/**
 * Sends one request and reads its whole response, of any status. Throws `network` for a missing or
 * incomplete response, `timeout` after `timeoutMs`, `unexpected_response` for a redirect or a body
 * above `maxBytes`, and the deadline's error.
 */
export async function attempt(
  fetcher: typeof fetch,
  call: HttpCall,
  deadline: Deadline,
  timeoutMs: number,
): Promise<Answer> {
  if (deadline.signal.aborted) throw deadline.error();
  return withDeadline({ signal: deadline.signal, timeoutMs }, async ({ signal }) => {
    try {
      return await Promise.race([exchange(fetcher, call, signal), rejectOn(signal)]);
    } catch (cause) {
      if (deadline.signal.aborted) throw deadline.error(cause);
      if (cause instanceof SdkError) throw cause;
      if (signal.aborted) {
        throw new SdkError('timeout', `no complete response in ${String(timeoutMs)} ms`, { cause });
      }
      const message = `no complete response from ${call.url.host}${errno(cause as Error)}`;
      throw new SdkError('network', message, { cause });
    }
  });
}

/** Node's code of a connection error, such as ECONNREFUSED. */
function errno({ cause }: { cause?: unknown }): string {
  const { code } = (cause ?? {}) as { code?: unknown };
  return typeof code === 'string' ? ` (${code})` : '';
}

async function exchange(
  fetcher: typeof fetch,
  { method, url, headers, body, maxBytes }: HttpCall,
  signal: AbortSignal,
): Promise<Answer> {
  const response = await fetcher(url, {
    method,
    headers,
    signal,
    // Follows no redirect, which would send the API key to its target.
    redirect: 'manual',
    credentials: 'omit',
    cache: 'no-store',
    ...(body !== undefined && { body: body as Uint8Array<ArrayBuffer> }),
  });
  const { status } = response;
  if (response.type === 'opaqueredirect' || (status >= 300 && status < 400)) {
    await response.body?.cancel();
    throw new SdkError('unexpected_response', 'redirects are not followed', { status });
  }
  return { status, headers: response.headers, bytes: await readBody(response, maxBytes) };
}

/**
 * A custom `fetch` may ignore its signal. The rejection waits one tick, so that a response which has
 * arrived wins: it may name an accepted admission.
 */
function rejectOn(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const end = (): void => reject(new Error('aborted'));
    signal.addEventListener('abort', () => setTimeout(end), { once: true });
  });
}

/** Counts the bytes of a body on arrival, because an endless body would fill the memory. */
async function readBody({ body, status }: Response, maxBytes: number): Promise<Uint8Array> {
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return concat(...chunks);
    length += value.length;
    if (length > maxBytes) {
      await reader.cancel();
      const message = `the response is longer than ${String(maxBytes)} bytes`;
      throw new SdkError('unexpected_response', message, { status });
    }
    chunks.push(value);
  }
}

/** Longest timer that Node and browsers support; a longer timer would fire immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export type Deadline = ReturnType<typeof openDeadline>;

export function openDeadline({ signal: caller, timeoutMs }: CallOptions) {
  const allowed = timeoutMs ?? DEFAULT_TIMEOUT_MS;
  if (!(allowed > 0)) throw new SdkError('invalid_input', 'timeoutMs must be above 0');
  const end = performance.now() + allowed;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const timer = allowed <= MAX_TIMER_MS ? setTimeout(abort, allowed) : undefined;
  if (caller?.aborted === true) abort();
  caller?.addEventListener('abort', abort, { once: true });

  /** The error of a fired signal: `aborted` or `timeout`. */
  const error = (cause?: unknown): SdkError => {
    if (caller?.aborted === true) {
      return new SdkError('aborted', 'the call was aborted', { cause: caller.reason });
    }
    return new SdkError('timeout', `the call took longer than ${String(allowed)} ms`, { cause });
  };

  return {
    signal: controller.signal,
    remainingMs: () => Math.max(0, end - performance.now()),
    sleep: (ms: number) =>
      new Promise<void>((resolve, reject) => {
        const wake = (): void => {
          clearTimeout(sleeping);
          controller.signal.removeEventListener('abort', wake);
          if (controller.signal.aborted) reject(error());
          else resolve();
        };
        const sleeping = setTimeout(wake, Math.min(ms, MAX_TIMER_MS));
        if (controller.signal.aborted) wake();
        else controller.signal.addEventListener('abort', wake, { once: true });
      }),
    error,
    close: () => {
      clearTimeout(timer);
      caller?.removeEventListener('abort', abort);
    },
  };
}

/** Runs a call with a deadline, and removes its timer and listener afterwards. */
export async function withDeadline<T>(
  options: CallOptions,
  run: (deadline: Deadline) => Promise<T>,
): Promise<T> {
  const deadline = openDeadline(options);
  try {
    return await run(deadline);
  } finally {
    deadline.close();
  }
}
