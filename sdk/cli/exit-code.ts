import type { SdkErrorCode } from '../errors.js';

/** What scripts branch on. Anything but 0 means: do not go on as if it were so. */
export const EXIT = {
  /** What was asked for is so: the verdict asserts validity, everything was admitted, it matches. */
  yes: 0,
  /** It is not so. */
  no: 1,
  /** The command, its settings or its input cannot be understood. Nothing was asked. */
  usage: 2,
  /** Nobody could tell, or it was refused: unreachable, no key pinned, not verified yet. */
  undecided: 3,
  /** Proved to be denied: by policy, this may not be done. */
  denied: 4,
  /** Ended by a signal. */
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
