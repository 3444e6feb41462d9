/** The database could not be asked: retry later. Never an answer to what was asked. */
export class DatabaseUnavailableError extends Error {
  override readonly name = 'DatabaseUnavailableError';
}

/** No policy set is active, so nothing can be accepted. */
export class PolicyMissingError extends Error {
  override readonly name = 'PolicyMissingError';
}

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
]);

// Class 08 connection exception, 53 insufficient resources, 57P operator intervention,
// 57014 statement timeout, 25006 a server that is a read-only standby now.
const SQLSTATES = /^(08...|53...|57P..|57014|25006)$/;

/** Whether an error says that its connection is gone, and whatever was under way in it. */
export function isConnectionLost(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof DatabaseUnavailableError) return isConnectionLost(error.cause);
  const { code } = error as { code?: unknown };
  return typeof code === 'string' && (DRIVER_CODES.has(code) || /^(08...|57P0[123])$/.test(code));
}

/** Whether an error says that the database is away, as opposed to having refused the statement. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof DatabaseUnavailableError) return true;
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  return typeof code === 'string' && (DRIVER_CODES.has(code) || SQLSTATES.test(code));
}

/** Runs a query and gives connection-level failures their own class, keeping the cause. */
export async function asking<T>(query: () => Promise<T>): Promise<T> {
  try {
    return await query();
  } catch (error) {
    if (isUnavailable(error) && !(error instanceof DatabaseUnavailableError)) {
      throw new DatabaseUnavailableError('the database cannot be reached', { cause: error });
    }
    throw error;
  }
}
