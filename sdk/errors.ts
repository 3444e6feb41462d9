import type { ProtocolErrorCode } from '../protocol/errors.js';
import type { OfflineFaultCode, PinErrorCode } from '../protocol/offline.js';
import type { AgentReceipt, ExecuteReceipt } from '../protocol/schemas/admission.js';

/**
 * Why a call failed: a closed set. Messages may change.
 *
 * - `invalid_input`: the input is invalid and was not sent; a batch admission has sent the items of earlier batches.
 * - `unusable_pin`: a pinned key is unusable, see `pin`. Nothing was verified.
 * - `evidence_rejected`: the evidence of a public answer or of a receipt does not verify under the
 *   pins, or proves a different answer or receipt; `fault` has the failed check. Do not rely on the answer.
 * - `evidence_outdated`: the evidence is too old for its answer.
 * - `aborted`: the caller's signal fired. `timeout`: the call took too long. `network`: the response
 *   is missing or incomplete. The service may have acted in all three cases: send the call again, unless
 *   it creates an API key or a share token.
 * - `unexpected_response`: the server is not this API, or answered a different request.
 * - `policy_denied`: a proven denial; `denial` has the receipt.
 * - `approval_required`: a proven decision that the action needs an approval; `approval` has the receipt.
 *   The action is not admitted.
 * - `arguments_changed`: the arguments of a tool call changed during its admission. The tool did not run.
 * - `unauthenticated` (401), `forbidden` (403), `not_found` (404), `not_ready` (409), `gone` (410),
 *   `invalid_request` (other 4xx), `lane_locked` (423), `rate_limited` (429), `engine_failed` (500),
 *   `unavailable` (408, 502, 503, 504): the response is an error; `problem` has the reason. After
 *   `engine_failed` and `unavailable`, the service may have acted.
 */
export const SDK_ERROR_CODES = [
  'invalid_input',
  'unusable_pin',
  'evidence_rejected',
  'evidence_outdated',
  'aborted',
  'timeout',
  'network',
  'unexpected_response',
  'policy_denied',
  'approval_required',
  'arguments_changed',
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

/** An error document of the service (RFC 9457). Programs should branch on `code`. */
export interface ServiceProblem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  /** Identifies the request to the operator. Absent from the public API. */
  request_id?: string;
  /** RFC 6901 pointers into the sent body; '' is the whole body. */
  errors?: { pointer: string; detail: string }[];
}

/** A decision of a policy or an approver against an action, signed and logged like an admission. */
export interface Denial {
  receipt: (ExecuteReceipt | AgentReceipt) & { status: 'DENIED' };
  /** Sorted: ids of policies, `fact.<name>` and `budget.<counter>`; empty when no policy permitted the action. */
  reasons: string[];
  /** Explanations of the reasons, by reason. */
  sentences: Record<string, string>;
}

/** A policy's decision that an action needs an approval. The action is not admitted. */
export interface RequiredApproval extends Omit<Denial, 'receipt'> {
  receipt: (ExecuteReceipt | AgentReceipt) & { status: 'APPROVAL_REQUIRED' };
  /** An approval that arrives at this time or later has no effect. */
  expires_at: string;
}

/** Details of an error besides its code, where known. */
export interface SdkErrorDetails {
  /** HTTP status of the response. */
  status?: number;
  /** `X-Request-Id` of the response, which identifies the request to the operator. */
  requestId?: string;
  problem?: ServiceProblem;
  denial?: Denial;
  approval?: RequiredApproval;
  /** RFC 6901 pointer into the input, with `invalid_input`. */
  pointer?: string;
  /** Why a pin is unusable, with `unusable_pin`. */
  pin?: PinErrorCode;
  /** The failed check, with `evidence_rejected` and `evidence_outdated`. */
  fault?: ProtocolErrorCode | OfflineFaultCode;
  /**
   * The proof of the decision, or of an accepted admission without a known decision, which
   * `followAdmissionHttp` takes.
   */
  proofId?: string;
  /** The tool that did not run, in an error of an adapter. */
  tool?: string;
  /** The action of this tool, if known. */
  action?: string;
  /** Milliseconds that the service requests as a delay. */
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

/** The only error class of this package. */
export class SdkError extends (Error as new (
  ...given: ConstructorParameters<ErrorConstructor>
) => Error & Readonly<SdkErrorDetails>) {
  override readonly name = 'SdkError';
  readonly code: SdkErrorCode;

  constructor(
    code: SdkErrorCode,
    message: string,
    details: { [K in keyof SdkErrorDetails]: SdkErrorDetails[K] | undefined } = {},
  ) {
    const { cause, ...rest } = details;
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    Object.assign(this, rest);
  }

  /** Whether the same call may succeed later. A retry is safe, unless the call creates an API key or a share token. */
  get retryable(): boolean {
    return RETRYABLE.has(this.code);
  }
}

/** Whether an error is a proven denial; `error.denial` has the receipt. */
export function isDenial(error: unknown): error is SdkError & { denial: Denial } {
  return error instanceof SdkError && error.code === 'policy_denied' && error.denial !== undefined;
}

/** Whether an adapter threw the error instead of running a tool. A tool may throw any other `SdkError`. */
export function isNotAdmitted(error: unknown): error is SdkError & { tool: string } {
  return error instanceof SdkError && error.tool !== undefined;
}
