/** The files of a published log by their paths: `checkpoint`, `tile/…`, `lookup/snapshot`. Untrusted. */
export interface LogFiles {
  /** The directory or URL, for messages. */
  readonly where: string;
  /**
   * The content of a file; null when the file does not exist.
   *
   * @throws UnreachableError when it is unknown whether the file exists
   */
  read(path: string): Promise<Uint8Array | null>;
}

/** A source could not be read. */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';
}
