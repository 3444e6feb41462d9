import type { PinErrorCode } from '../protocol/offline.js';
import type { AgentReceipt } from '../protocol/schemas/agent.js';
import type { ExecuteReceipt } from '../protocol/schemas/execute.js';

/**
 * Why a call gave no result: a closed set, to switch on. Messages are for people and may change.
 *
 * - `invalid_input`: refused here, and nothing was sent.
 * - `unusable_pin`: what was pinned cannot be used, and nothing was checked; `pin` says why.
 * - `aborted`: the caller's signal. `timeout`: the time of the call ran out. `network`: no answer,
 *   or one that broke off. After these nobody knows whether the service acted: ask again.
 * - `unexpected_response`: what answered is not this API, or answered something else than was asked.
 * - `policy_denied`: decided, proved, and denied; `denial` has the receipt.
 * - `unauthenticated` (401), `forbidden` (403), `not_found` (404), `not_ready` (409), `gone` (410),
 *   `invalid_request` (other 4xx), `lane_locked` (423), `rate_limited` (429), `engine_failed` (500),
 *   `unavailable` (502, 503, 504): the service refused; `problem` says why.
 */
export const SDK_ERROR_CODES = [
  'invalid_input',
  'unusable_pin',
  'aborted',
  'timeout',
  'network',
  'unexpected_response',
  'policy_denied',
  'unauthenticated',
  'forbidden',
  'not_found',
  'not_ready',
  'gone',
  'invalid_request',
  'lane_locked',
  'rate_limited',
  'engine_failed',
  'unavailable',
] as const;
/** One of {@link SDK_ERROR_CODES}. */
export type SdkErrorCode = (typeof SDK_ERROR_CODES)[number];

/** An error of the service (RFC 9457). `code` says which; the texts are for people. */
export interface ServiceProblem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  /** To be named when asking the operator; the public API gives none. */
  request_id?: string;
  /** RFC 6901 pointers into the body that was sent; '' is all of it. */
  errors?: { pointer: string; detail: string }[];
}

/** A decision against an action. It is proved as an admission is: the receipt names the proof. */
export interface Denial {
  receipt: (ExecuteReceipt | AgentReceipt) & { status: 'DENIED' };
  /** Ids of the policies that decided, sorted; none when no policy permitted it. */
  reasons: string[];
  /** What those policies say to people, by policy id. */
  sentences: Record<string, string>;
}

/** What there is to know of an error besides its code, where it is known. */
export interface SdkErrorDetails {
  /** HTTP status, when there was an answer. */
  status?: number;
  problem?: ServiceProblem;
  denial?: Denial;
  /** RFC 6901 pointer into the input, of `invalid_input`. */
  pointer?: string;
  /** Of `unusable_pin`. */
  pin?: PinErrorCode;
  /** Of an admission that is accepted and not decided yet, as far as was seen: it can be followed. */
  proofId?: string;
  /** Milliseconds that the service asked to wait. */
  retryAfterMs?: number;
  cause?: unknown;
}

const RETRYABLE: ReadonlySet<SdkErrorCode> = new Set<SdkErrorCode>([
  'timeout',
  'network',
  'not_ready',
  'rate_limited',
  'unavailable',
]);

/** The one error that this package throws. */
export class SdkError extends Error {
  override readonly name = 'SdkError';
  readonly code: SdkErrorCode;
  readonly status?: number;
  readonly problem?: ServiceProblem;
  readonly denial?: Denial;
  readonly pointer?: string;
  readonly pin?: PinErrorCode;
  readonly proofId?: string;
  readonly retryAfterMs?: number;

  constructor(code: SdkErrorCode, message: string, details: SdkErrorDetails = {}) {
    const { cause, ...rest } = details;
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    Object.assign(this, rest);
  }

  /** Whether the same call may succeed later. Repeating is always safe: admissions are idempotent. */
  get retryable(): boolean {
    return RETRYABLE.has(this.code);
  }
}

/** Whether an error is a denial, and so proved: `error.denial` has the receipt. */
export function isDenial(error: unknown): error is SdkError & { denial: Denial } {
  return error instanceof SdkError && error.code === 'policy_denied' && error.denial !== undefined;
}
