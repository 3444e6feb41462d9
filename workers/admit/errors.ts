/** The log does not know this process's key as active at the next index: nothing it signs counts. */
export class SigningKeyInactiveError extends Error {
  override readonly name = 'SigningKeyInactiveError';
}

/** The rest of a group is settled; these are not, for a reason that is not theirs and may pass. */
export class DeferredError extends Error {
  override readonly name = 'DeferredError';
  readonly ids: ReadonlySet<string>;

  constructor(ids: readonly string[], cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`${String(ids.length)} of the group cannot be decided: ${why}`, { cause });
    this.ids = new Set(ids);
  }
}
