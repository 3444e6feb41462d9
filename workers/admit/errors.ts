/** The log does not know this process's key as active at the next index: nothing it signs counts. */
export class SigningKeyInactiveError extends Error {
  override readonly name = 'SigningKeyInactiveError';
}
