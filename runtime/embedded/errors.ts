import { OperatorError } from '../operator-error.js';

export type EmbeddedPostgresErrorCode =
  | 'unsupported_platform'
  | 'binaries_unusable'
  | 'no_account'
  | 'no_reachable_place'
  | 'cluster_missing'
  | 'wrong_owner'
  | 'wrong_version'
  | 'password_missing'
  | 'already_running'
  | 'initdb_failed'
  | 'start_failed';

/** Why the embedded database did not come up; the message says what to do about it. */
export class EmbeddedPostgresError extends OperatorError {
  override name = 'EmbeddedPostgresError';
  readonly code: EmbeddedPostgresErrorCode;

  constructor(code: EmbeddedPostgresErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
