/** The stored admission is not what was accepted, so it cannot be settled. */
export class IntakeMismatchError extends Error {
  override readonly name = 'IntakeMismatchError';
}

/** This process is not made for the admission; another, newer one may be. */
export class UnknownLaneError extends Error {
  override readonly name = 'UnknownLaneError';
}
