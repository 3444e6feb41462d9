import type { Receipt } from '../protocol/aep.js';
import type { OfflineTrust, PinnedLog } from '../protocol/offline.js';
import type { ReceiptEvidence } from '../protocol/schemas/proof-export.js';
import { SdkError } from './errors.js';

/** Retries of a request. Retrying is safe: the SDK never retries a call that is not idempotent. */
export interface RetryOptions {
  /** Maximum number of requests, including the first; default 5. */
  attempts?: number;
  /** Timeout of one request in milliseconds; default 15,000. */
  attemptTimeoutMs?: number;
  /** Milliseconds before the first retry, doubled before each further one; default 200. */
  baseDelayMs?: number;
  /** Maximum milliseconds between two requests, unless the service requests more; default 10,000. */
  maxDelayMs?: number;
}

/** Options of every call. */
export interface CallOptions {
  /** Replaces the global `fetch`, for example to use a proxy. */
  fetch?: typeof fetch;
  /** Timeout of the whole call in milliseconds, including retries; default 60,000. */
  timeoutMs?: number;
  /** Ends the call with the code `aborted`. An admission that the service accepted remains. */
  signal?: AbortSignal;
  retry?: RetryOptions;
}

/** The address of the engine, and the credentials of the calling tenant. */
export interface EngineOptions extends CallOptions {
  /** Base address, http(s), with or without a path before `/v1`. */
  engineUrl: string;
  /** API key, `svc_sk_…`. Sent to `engineUrl` only; no error contains it. */
  apiKey: string;
  tenantId: string;
  /**
   * The SDK fetches the evidence of each receipt of a single admission in the background, with one more
   * request; `receiptEvidenceOf` waits for it. With `false`, the SDK fetches no evidence.
   */
  receiptEvidence?: false | ReceiptEvidenceOptions;
}

/** How the SDK verifies and stores the evidence of receipts. */
export interface ReceiptEvidenceOptions {
  /** AEP keys, and optionally the log, from a source other than the engine. */
  pins?: OfflineTrust;
  /** Your function that stores the evidence of `receipt`. With `pins`, the SDK has verified the evidence. */
  store?: (evidence: ReceiptEvidence, receipt: Receipt) => unknown;
  /**
   * Gets every failure to fetch, verify or store evidence in the background. The receipt was
   * returned regardless: `readReceiptEvidenceHttp` fetches its evidence later.
   */
  onError: (error: unknown, receipt: Receipt) => unknown;
}

/** The public API, which requires no key. */
export interface PublicOptions extends CallOptions {
  /** Base address, http(s), with or without a path before `/api`. */
  publicUrl: string;
  /**
   * The log of shard 0: vkeys, origin and, optionally, a C2SP tlog-policy, all from a source other than the registry.
   * With `pins`, every verdict is verified against evidence of the log.
   */
  pins?: PinnedLog;
  /** Highest accepted age of evidence in milliseconds; 24 hours is default and maximum. Needs `pins`. */
  maxAgeMs?: number;
}

export const DEFAULT_TIMEOUT_MS = 60_000;

export const RETRY_DEFAULTS: Required<RetryOptions> = {
  attempts: 5,
  attemptTimeoutMs: 15_000,
  baseDelayMs: 200,
  maxDelayMs: 10_000,
};

/** The base address with a trailing slash. Throws `invalid_input`. */
export function parseBaseUrl(name: 'engineUrl' | 'publicUrl', text: string): URL {
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

/** Checks a header value. Throws `invalid_input` without quoting it: it may be a secret. */
export function headerValue(name: 'apiKey' | 'tenantId', text: string): string {
  if (!/^[\x21-\x7e]+$/.test(text)) {
    throw new SdkError('invalid_input', `${name} is missing or has invalid characters`);
  }
  return text;
}

/** The members that are present and not undefined. */
export const withoutUndefined = <T extends object>(members: T) =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };

/** @param pointer the faulty member of the input */
export const invalidInput = (pointer: string, message: string, cause?: unknown): SdkError =>
  new SdkError('invalid_input', message, { pointer, cause });
