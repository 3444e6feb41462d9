import type { SdkErrorCode } from '../errors.js';

/** Scripts branch on these. Only 0 means that a script may go on. */
export const EXIT = {
  /** Valid, admitted, included, authentic or matching. */
  success: 0,
  /** The opposite of success. */
  negative: 1,
  /** The command, a setting or the input is wrong. No request was sent. */
  usage: 2,
  /** Unreachable, request rejected, no key pinned, or not verified yet. */
  undecided: 3,
  /** A proven policy denial. */
  denied: 4,
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

const BY_ERROR: Partial<Record<SdkErrorCode, ExitCode>> = {
  invalid_input: EXIT.usage,
  unusable_pin: EXIT.usage,
  policy_denied: EXIT.denied,
  aborted: EXIT.interrupted,
};

export function exitCodeOf(code: SdkErrorCode): ExitCode {
  return BY_ERROR[code] ?? EXIT.undecided;
}

/**
 * A valid proof of a denial has a code of its own: a script that waits for 0 must not run the denied
 * action.
 */
export function verdictExit(
  status: string,
  canAssertValidity: boolean,
  effect: 'ADMIT' | 'DENY' | undefined,
): ExitCode {
  if (canAssertValidity) return effect === 'DENY' ? EXIT.denied : EXIT.success;
  return status === 'BACKEND_LOOKUP_REQUIRED' ? EXIT.undecided : EXIT.negative;
}
