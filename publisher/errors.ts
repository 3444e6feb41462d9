import { OperatorError } from '#runtime/process/operator-error';

/** Why a publisher may not go on by itself. */
export type StopCode =
  /** Leaves that were published are not in the database. */
  | 'database_behind'
  /** Its log is whole; verdicts, share tokens or packages that were published are missing. */
  | 'changes_behind'
  | 'log_forked'
  | 'tree_mismatch'
  | 'checkpoint_unverifiable'
  | 'log_ended'
  | 'snapshot_unverifiable'
  | 'snapshot_damaged'
  | 'published_file_differs';

/**
 * Going on would publish something that contradicts what the public has already seen, or something
 * that nobody can vouch for. A person has to decide; the message says between what.
 */
export class FatalPublishError extends OperatorError {
  override name = 'FatalPublishError';

  constructor(
    readonly code: StopCode,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** Another publisher leads now. Not a fault: this one stands by. */
export class LeaseLostError extends Error {
  override readonly name = 'LeaseLostError';
}
