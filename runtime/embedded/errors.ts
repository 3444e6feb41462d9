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
export class EmbeddedPostgresError extends Error {
  readonly code: EmbeddedPostgresErrorCode;

  constructor(code: EmbeddedPostgresErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'EmbeddedPostgresError';
    this.code = code;
  }
}
