/** What was typed cannot be done; the message says what to type. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
