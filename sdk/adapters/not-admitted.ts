import type { Denial } from '../errors.js';

/**
 * Why a tool did not run: a closed set.
 *
 * - `denied`: a proven policy denial; see `denial.receipt` and `proofId`.
 * - `undecided`: no admission in time. The engine was unreachable, rejected the request, or sent an
 *   unexpected response; `cause` is the `SdkError`. With a `proofId`, a decision may follow.
 * - `invalid_call`: arguments that are not plain JSON, or a name without an action. No request was sent.
 * - `arguments_changed`: the arguments differ from the admitted ones.
 * - `aborted`: the caller's signal fired.
 */
export const NOT_ADMITTED_CODES = [
  'denied',
  'undecided',
  'invalid_call',
  'arguments_changed',
  'aborted',
] as const;
/** One of `NOT_ADMITTED_CODES`. */
export type NotAdmittedCode = (typeof NOT_ADMITTED_CODES)[number];

/** Known details of the decision. */
export interface NotAdmittedDetails {
  action?: string;
  proofId?: string;
  denial?: Denial;
  cause?: unknown;
}

/** Thrown by an adapter instead of the tool's result: the tool did not run. */
export class NotAdmittedError extends Error {
  override readonly name = 'NotAdmittedError';
  readonly code: NotAdmittedCode;
  readonly tool: string;
  readonly action?: string;
  /** The proof of the decision, if any. */
  readonly proofId?: string;
  readonly denial?: Denial;

  constructor(code: NotAdmittedCode, tool: string, why: string, details: NotAdmittedDetails = {}) {
    const { cause, ...rest } = details;
    const proof = rest.proofId === undefined ? '' : ` (proof ${rest.proofId})`;
    super(`${tool} did not run: ${why}${proof}`, cause === undefined ? undefined : { cause });
    this.code = code;
    this.tool = tool;
    Object.assign(this, rest);
  }
}
