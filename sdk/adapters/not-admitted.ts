import { SdkError, type SdkErrorCode } from '../errors.js';

/** Prefixes of messages, by code. */
const REASONS: Partial<Record<SdkErrorCode, string>> = {
  aborted: '',
  approval_required: '',
  arguments_changed: '',
  policy_denied: 'denied by policy: ',
};

/**
 * The error of a call that did not run, with the details of its reason.
 *
 * @param prefix for codes not in `REASONS`
 */
export function notAdmitted(
  thrown: unknown,
  call: { tool: string; action?: string; proofId?: string },
  prefix = 'not admitted: ',
): SdkError {
  const error = thrown instanceof SdkError ? thrown : foreign(thrown);
  const details = { ...error, ...call, cause: error.cause };
  const { code, proofId } = details;
  const reason = `${REASONS[code] ?? prefix}${error.message}`;
  const proof = proofId === undefined ? '' : ` (proof ${proofId})`;
  return new SdkError(code, `${call.tool} did not run: ${reason}${proof}`, details);
}

/** Wraps an error that a function of the options threw, such as `describe` or `action`. */
const foreign = (cause: unknown): SdkError =>
  new SdkError('invalid_input', cause instanceof Error ? cause.message : String(cause), { cause });
