import { SdkError } from './errors.js';

/** When and how often a request is repeated. Repeating is safe: every call here is idempotent. */
export interface RetryOptions {
  /** Requests made at most, the first one included; 5. 1: none is repeated. */
  attempts?: number;
  /** Milliseconds that one request may take before it is given up and repeated; 15,000. */
  attemptTimeoutMs?: number;
  /** Milliseconds before the first repetition, doubled with each further one; 200. */
  baseDelayMs?: number;
  /** The most milliseconds between two requests, unless the service asks for more; 10,000. */
  maxDelayMs?: number;
}

/** What every call takes. */
export interface CallOptions {
  /** Instead of the global `fetch`: for a proxy, an agent, or a test. */
  fetch?: typeof fetch;
  /** Milliseconds for the whole call, repetitions and waiting included; 60,000. */
  timeoutMs?: number;
  /** Ends the call with the code `aborted`. What the service accepted by then stays accepted. */
  signal?: AbortSignal;
  retry?: RetryOptions;
}

/** Where the engine is, and who calls. */
export interface EngineOptions extends CallOptions {
  /** http(s), with or without a path in front of `/v1`. */
  engineUrl: string;
  /** `svc_sk_…`: sent to `engineUrl` and nowhere else; never in an error. */
  apiKey: string;
  tenantId: string;
}

/** Where the public API is. It asks for no key. */
export interface PublicOptions extends CallOptions {
  /** http(s), with or without a path in front of `/api`. */
  publicUrl: string;
}

export const DEFAULT_TIMEOUT_MS = 60_000;

export const RETRY_DEFAULTS: Required<RetryOptions> = {
  attempts: 5,
  attemptTimeoutMs: 15_000,
  baseDelayMs: 200,
  maxDelayMs: 10_000,
};

/** The base address, with a slash at its end, or `invalid_input`. */
export function baseOf(name: 'engineUrl' | 'publicUrl', text: string): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw new SdkError('invalid_input', `${name} is not a URL`, { cause });
  }
  const isPlain = url.username === '' && url.password === '' && url.search === '';
  if (!['http:', 'https:'].includes(url.protocol) || !isPlain || url.hash !== '') {
    throw new SdkError('invalid_input', `${name} is not a plain http(s) address`);
  }
  if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url;
}

/** What can be sent as the value of a header, and is sent as it is. */
export function headerValue(name: 'apiKey' | 'tenantId', text: string): string {
  // The text stays out of the message: it may be a secret.
  if (!/^[\x21-\x7e]+$/.test(text)) {
    throw new SdkError('invalid_input', `${name} is missing, or has characters that none has`);
  }
  return text;
}
