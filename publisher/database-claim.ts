import type { ReservedSql } from 'postgres';
import type { Pool } from '#sql/db';
import { asking } from '#sql/errors';
import type { Claim } from './leader.js';

/** Names the lock: "svc" and the publisher. Advisory lock numbers are shared by a whole database. */
const LOCK = [0x737663, 1] as const;

/**
 * One publisher per registry, wherever its directory is: a session-level advisory lock, which the
 * database itself gives back when the connection that holds it ends.
 */
export class DatabaseClaim implements Claim {
  private holder: { connection: ReservedSql; pid: number } | undefined;

  constructor(private readonly sql: Pool) {}

  async take(): Promise<boolean> {
    if (await this.held()) return true;
    await this.release();
    return asking(async () => {
      const connection = await this.sql.reserve();
      try {
        const [row] = await connection<{ locked: boolean; pid: number }[]>`
          select pg_try_advisory_lock(${LOCK[0]}::int, ${LOCK[1]}::int) as locked,
            pg_backend_pid() as pid`;
        if (row?.locked === true) {
          this.holder = { connection, pid: row.pid };
          return true;
        }
      } catch (error) {
        connection.release();
        throw error;
      }
      connection.release();
      return false;
    });
  }

  /** The driver may reconnect without a word; another backend does not hold the lock. */
  async held(): Promise<boolean> {
    const { holder } = this;
    if (holder === undefined) return false;
    try {
      const [row] = await holder.connection<{ pid: number }[]>`select pg_backend_pid() as pid`;
      return row?.pid === holder.pid;
    } catch {
      return false;
    }
  }

  async release(): Promise<void> {
    const { holder } = this;
    this.holder = undefined;
    if (holder === undefined) return;
    try {
      await holder.connection`select pg_advisory_unlock(${LOCK[0]}::int, ${LOCK[1]}::int)`;
    } catch {
      // The connection is gone, and the lock with it.
    }
    holder.connection.release();
  }
}
