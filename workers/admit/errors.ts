/** The stored admission is not what was accepted, so it cannot be settled. */
export class IntakeMismatchError extends Error {
  override readonly name = 'IntakeMismatchError';
}

/** This process is not made for the admission; another, newer one may be. */
export class UnknownLaneError extends Error {
  override readonly name = 'UnknownLaneError';
}

/** The log does not know this process's key as active at the next index: nothing it signs counts. */
export class SigningKeyInactiveError extends Error {
  override readonly name = 'SigningKeyInactiveError';
}
