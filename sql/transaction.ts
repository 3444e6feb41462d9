import type { Pool, Transaction } from './db.js';
import { asking, isConnectionLost } from './errors.js';

/**
 * Runs `work` in one transaction: committed when it returns, rolled back when it throws. Between
 * its statements `work` waits for nothing but the database.
 *
 * The driver's own `begin` answers a lost connection by sending ROLLBACK into it, which throws
 * where nobody can catch it and ends the process. A connection that is gone has rolled back by
 * itself; here it is left to the pool, which opens another.
 *
 * @throws DatabaseUnavailableError when the connection is lost. If that happens while committing,
 *   whether the transaction took place is not known: whoever retries must be able to do it twice.
 */
export function transaction<T>(sql: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return asking(async () => {
    const connection = await sql.reserve();
    try {
      await connection`begin`;
      const result = await work(connection);
      await connection`commit`;
      connection.release();
      return result;
    } catch (error) {
      if (!isConnectionLost(error)) {
        await connection`rollback`;
        connection.release();
      }
      throw error;
    }
  });
}
