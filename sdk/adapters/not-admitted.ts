import type { Denial } from '../errors.js';

/**
 * Why a tool did not run: a closed set.
 *
 * - `denied`: a policy decided against it, and that is proved: `denial.receipt`, `proofId`.
 * - `undecided`: nobody said yes in time. The engine was away, refused the call, or answered
 *   something else; `cause` is the `SdkError`. With a `proofId` the decision may still come.
 * - `invalid_call`: it could not even be asked: arguments that are no plain JSON, a name that makes
 *   no action. Nothing was sent.
 * - `arguments_changed`: admitted, but the arguments are not those any more that were admitted.
 * - `aborted`: the caller's signal.
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

/** What is known of the decision, beside its code. */
export interface NotAdmittedDetails {
  action?: string;
  proofId?: string;
  denial?: Denial;
  cause?: unknown;
}

/** What an adapter throws in the place of a tool's result: the tool did not run. */
export class NotAdmittedError extends Error {
  override readonly name = 'NotAdmittedError';
  readonly code: NotAdmittedCode;
  readonly tool: string;
  readonly action?: string;
  /** Of the decision, where there is one. */
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
