/** The stored admission differs from the accepted one, so it cannot be committed. */
export class IntakeMismatchError extends Error {
  override readonly name = 'IntakeMismatchError';
}

/** This version does not know the request type of the admission; a newer one may. */
export class UnknownRequestTypeError extends Error {
  override readonly name = 'UnknownLaneError';
}
