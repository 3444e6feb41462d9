import type { Pool } from '#sql/db';
import { mapDbErrors } from '#sql/errors';
import type { Lease } from './leader.js';

/** Names the lock: "svc" and the publisher. Advisory lock numbers are shared by a whole database. */
const LOCK = [0x737663, 1] as const;

/**
 * One publisher per registry, wherever its directory is: a session-level advisory lock, which the
 * database itself gives back when the connection that holds it ends.
 */
export class DatabaseClaim implements Lease {
  /** The backend that holds the lock for this claim. */
  private pid: number | null = null;

  /** @param sql a pool of one connection that nobody else uses: the lock is that connection's */
  constructor(private readonly sql: Pool) {
    if (sql.options.max !== 1) throw new Error('the lock needs a connection of its own');
  }

  async take(): Promise<boolean> {
    if (await this.held()) return true;
    return mapDbErrors(async () => {
      const [row] = await this.sql<{ locked: boolean; pid: number }[]>`
        select pg_try_advisory_lock(${LOCK[0]}::int, ${LOCK[1]}::int) as locked,
          pg_backend_pid() as pid`;
      if (row?.locked !== true) return false;
      this.pid = row.pid;
      return true;
    });
  }

  /** The driver may reconnect without a word; another backend does not hold the lock. */
  async held(): Promise<boolean> {
    if (this.pid === null) return false;
    try {
      const [row] = await this.sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
      return row?.pid === this.pid;
    } catch {
      return false;
    }
  }

  async release(): Promise<void> {
    const { pid } = this;
    this.pid = null;
    if (pid === null) return;
    try {
      await this.sql`select pg_advisory_unlock(${LOCK[0]}::int, ${LOCK[1]}::int)`;
    } catch {
      // The connection is gone, and the lock with it.
    }
  }
}
