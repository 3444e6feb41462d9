/** The files of a published log by their paths: `checkpoint`, `tile/…`, `lookup/snapshot`. Untrusted. */
export interface LogFiles {
  /** The directory or URL, for messages. */
  readonly where: string;
  /**
   * A file; null when there is none.
   *
   * @throws UnreachableError when it is unknown whether there is one
   */
  read(path: string): Promise<Uint8Array | null>;
}

/** A source could not be read. */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';
}
