import { SdkError } from '../errors.js';
import { timerMs, type Deadline } from './deadline.js';

export interface HttpCall {
  method: 'GET' | 'POST';
  url: URL;
  headers: Record<string, string>;
  body?: Uint8Array;
  /** The longest answer that is read. */
  maxBytes: number;
}

export interface Answer {
  status: number;
  headers: Headers;
  bytes: Uint8Array;
}

/**
 * One request and its whole answer, whatever its status. Throws `network` when there is none or it
 * breaks off, `timeout` after `timeoutMs`, `unexpected_response` for one that is too long or leads
 * elsewhere, and the deadline's fault.
 */
export async function attempt(
  fetcher: typeof fetch,
  call: HttpCall,
  deadline: Deadline,
  timeoutMs: number,
): Promise<Answer> {
  if (deadline.signal.aborted) throw deadline.fault();
  const controller = new AbortController();
  const stop = (): void => controller.abort();
  deadline.signal.addEventListener('abort', stop, { once: true });
  const timer = setTimeout(stop, timerMs(timeoutMs));
  try {
    return await Promise.race([
      answerOf(fetcher, call, controller.signal),
      ended(controller.signal),
    ]);
  } catch (cause) {
    if (deadline.signal.aborted) throw deadline.fault({ cause });
    if (cause instanceof SdkError) throw cause;
    if (controller.signal.aborted) {
      throw new SdkError('timeout', `no whole answer within ${String(timeoutMs)} ms`, { cause });
    }
    throw new SdkError('network', `no whole answer from ${call.url.host}${why(cause as Error)}`, {
      cause,
    });
  } finally {
    clearTimeout(timer);
    deadline.signal.removeEventListener('abort', stop);
  }
}

/** What Node says of a connection, such as ECONNREFUSED: nothing listens there, or not yet. */
function why({ cause }: { cause?: unknown }): string {
  const { code } = (cause ?? {}) as { code?: unknown };
  return typeof code === 'string' ? ` (${code})` : '';
}

async function answerOf(
  fetcher: typeof fetch,
  { method, url, headers, body, maxBytes }: HttpCall,
  signal: AbortSignal,
): Promise<Answer> {
  const response = await fetcher(url, {
    method,
    headers,
    signal,
    // A redirect would take the API key along to wherever it leads.
    redirect: 'manual',
    credentials: 'omit',
    cache: 'no-store',
    ...(body !== undefined && { body: body as Uint8Array<ArrayBuffer> }),
  });
  if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) {
    await response.body?.cancel();
    throw unexpected('redirects are not followed', response.status);
  }
  const bytes = await readBody(response, maxBytes);
  return { status: response.status, headers: response.headers, bytes };
}

/**
 * A `fetch` that was handed in may not look at its signal; the time is up all the same. An answer that
 * is in by then is taken: it says under which id there is an admission.
 */
function ended(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const end = (): void => reject(new Error('ended'));
    signal.addEventListener('abort', () => setTimeout(end), { once: true });
  });
}

/** Counted while it comes: an answer without end would fill the memory. */
async function readBody(response: Response, maxBytes: number): Promise<Uint8Array> {
  if (response.body === null) return new Uint8Array(0);
  const reader = response.body.getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > maxBytes) {
      await reader.cancel();
      throw unexpected(`the answer is longer than ${String(maxBytes)} bytes`, response.status);
    }
    parts.push(value);
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function unexpected(message: string, status: number): SdkError {
  return new SdkError('unexpected_response', message, { status });
}
