import { isLoginRejected } from '#runtime/postgres/hosts';
import { OperatorError } from '#runtime/process/operator-error';

/** The database could not be reached: retry later. */
export class DatabaseUnavailableError extends OperatorError {}

/** The database answers but cannot be used: wrong login, wrong database or no schema. */
export class DatabaseUnusableError extends OperatorError {}

/** No policy set is active, so no admission can be accepted. */
export class PolicyMissingError extends Error {}

/** The policy set for which a request was translated is not in force. Nothing is stored. */
export class PolicyChangedError extends Error {}

const DRIVER_CODES = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'POOL_TIMEOUT',
]);

// Class 08 connection exception, 53 insufficient resources, 57P operator intervention, 57014
// statement timeout, 25P03 and 25P04 transaction timeouts, 25006 a standby or a read-only database.
const SQLSTATES = /^(08...|53...|57P..|57014|25P0[34]|25006)$/;

/** Node's codes for a server certificate that is expired, untrusted or of another host, and for other TLS failures. */
const TLS_CODES = /^(ERR_(TLS|SSL)_|CERT_|DEPTH_ZERO_|INVALID_|SELF_SIGNED_|UNABLE_TO_)/;

const isOfConnection = (code: string): boolean => DRIVER_CODES.has(code) || TLS_CODES.test(code);

/** Whether a connection failed or was lost, also because the server had no free connection (53300). */
export function isConnectionLost(error: unknown): boolean {
  const code = codeOf(error);
  return isOfConnection(code) || /^(08...|57P0[123]|25P0[34]|53300)$/.test(code);
}

/** Whether a statement exceeded the lock timeout of its transaction, which then changed nothing. */
export const isLockTimeout = (error: unknown): boolean => codeOf(error) === '55P03';

/** Whether an earlier statement of the transaction had failed. */
export const isAborted = (error: unknown): boolean => codeOf(error) === '25P02';

/** Whether PostgreSQL cancelled a statement, usually because of its statement timeout. */
export const isStatementTimeout = (error: unknown): boolean => codeOf(error) === '57014';

/**
 * Whether the error means that the database is unavailable, not that it rejected the statement. Also
 * recognises errors of the driver, because only transactions wrap these.
 */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof DatabaseUnavailableError) return true;
  const code = codeOf(error);
  return isOfConnection(code) || isLoginRejected(code) || SQLSTATES.test(code);
}

/** The code of the driver's error, also of a wrapped one; empty without a code. */
function codeOf(error: unknown): string {
  if (error instanceof DatabaseUnavailableError) return codeOf(error.cause);
  const { code } = error instanceof Error ? (error as { code?: unknown }) : {};
  return typeof code === 'string' ? code : '';
}

/** The texts do not name DATABASE_URL: a URL may also come from DATABASE_READ_URL, or a file of `admin init`. */
const UNUSABLE: Record<string, string> = {
  '28P01': 'the database rejected the password in its URL',
  '28000': 'the database rejected the user in its URL',
  '3D000': 'the server has no database with the name in the URL',
  '3F000': 'the database has no registry yet: prepare it (npm run admin -- init)',
  '42P01': 'the database lacks tables of this version: prepare it (npm run admin -- init)',
  '42703': 'the database lacks columns of this version: prepare it (npm run admin -- init)',
  '42501':
    'the role in the URL lacks privileges of this version: prepare it (npm run admin -- init)',
};

/** Runs a program's first query: its errors name the cause and the next step. */
export async function mapStartupDbErrors<T>(query: () => Promise<T>): Promise<T> {
  try {
    return await query();
  } catch (error) {
    const { code, message } = error as Error & { code?: unknown };
    const explanation = UNUSABLE[String(code)];
    if (explanation !== undefined) {
      throw new DatabaseUnusableError(`${explanation} (${message})`, { cause: error });
    }
    throw asUnavailable(error);
  }
}

/** Wraps an error in a DatabaseUnavailableError if the error means that the database is unavailable. */
export function asUnavailable(error: unknown): unknown {
  if (!isUnavailable(error) || error instanceof DatabaseUnavailableError) return error;
  const { message } = error as Error;
  const what = isLoginRejected(codeOf(error))
    ? 'rejected the login'
    : isConnectionLost(error)
      ? 'cannot be reached'
      : 'did not complete a statement';
  return new DatabaseUnavailableError(`the database ${what}: ${message}`, { cause: error });
}

/** Whether the error means that a policy set or an overlay was activated meanwhile. */
export const isNotCombined = (error: unknown): boolean =>
  (error as { code?: unknown } | null)?.code === 'SV001';
