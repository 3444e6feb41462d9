import { OperatorError } from '#runtime/process/operator-error';

/** Why a publisher must stop until an operator decides. */
export type StopCode =
  /** The database lacks published leaves. */
  | 'database_behind'
  /** The database has every published leaf, but lacks published verdicts, share tokens or packages. */
  | 'changes_behind'
  | 'log_forked'
  | 'tree_mismatch'
  | 'checkpoint_unverifiable'
  | 'log_ended'
  | 'snapshot_unverifiable'
  | 'snapshot_damaged'
  | 'published_file_differs';

/**
 * Publishing would contradict published data, or sign unverified data. An operator has to decide; the
 * message names the options.
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

/** Another publisher holds the lease. This is no fault: this publisher becomes the standby. */
export class LeaseLostError extends Error {
  override readonly name = 'LeaseLostError';
}
