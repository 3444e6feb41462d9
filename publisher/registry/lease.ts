import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { lock } from 'proper-lockfile';
import { futureLock } from '#runtime/process/files';
import { logRarely, type Logger } from '#runtime/process/log';
import { type Pool, requirePrimary } from '#sql/db/transaction';
import { LeaseLostError } from '../errors.js';

/** A lease that at most one publisher holds at a time. */
export interface Lease {
  /** Takes the lease if free, and returns whether this publisher now holds the lease. */
  take(): Promise<boolean>;
  /** Whether this publisher still holds the lease; checked right before each irreversible step. */
  held(): Promise<boolean>;
  release(): Promise<void>;
}

/** A lock without a heartbeat for this long counts as abandoned. */
const STALE_MS = 5_000;

/** One publisher per snapshot directory: two publishers would replace each other's files. */
export class DirectoryLease implements Lease {
  private unlock: (() => Promise<void>) | undefined;

  constructor(
    private readonly root: string,
    private readonly log: Logger,
  ) {}

  async take(): Promise<boolean> {
    if (this.unlock !== undefined) return true;
    await mkdir(this.root, { recursive: true });
    const lockfilePath = join(this.root, '.lock');
    try {
      const unlock = await lock(this.root, {
        lockfilePath,
        stale: STALE_MS,
        update: STALE_MS / 5,
        onCompromised: (error) => {
          // Another process considered this process dead, and may already publish.
          this.log.error(
            { err: error },
            'publisher: another process took the lock on the snapshot directory',
          );
          this.unlock = undefined;
        },
      });
      this.unlock = unlock;
      return true;
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'ELOCKED') throw error;
      const problem = await futureLock(lockfilePath);
      if (problem !== null)
        logRarely(this.log, 'warn', {}, `publisher: the lock cannot be taken over: ${problem}`);
      return false;
    }
  }

  held(): Promise<boolean> {
    return Promise.resolve(this.unlock !== undefined);
  }

  async release(): Promise<void> {
    const unlock = this.unlock;
    this.unlock = undefined;
    try {
      await unlock?.();
    } catch (error) {
      // Another process took the lock before onCompromised noticed.
      const { code } = error as { code?: unknown };
      if (code !== 'ERELEASED' && code !== 'ENOTACQUIRED') throw error;
    }
  }
}

/**
 * All leases of a publisher. The publisher is the leader only while it holds every lease; otherwise it releases all of
 * them.
 */
export class Leadership {
  /** Whether this publisher held every lease at the last check; `require` checks again. */
  isLeading = false;

  constructor(private readonly leases: readonly Lease[]) {}

  async take(): Promise<boolean> {
    try {
      for (const lease of this.leases) {
        if (await lease.take()) continue;
        await this.release();
        return false;
      }
      this.isLeading = true;
      return true;
    } catch (error) {
      // Releases the leases, because a publisher that holds only some must not block a healthy publisher.
      await this.release();
      throw error;
    }
  }

  /** @throws LeaseLostError unless every lease is still held */
  async require(): Promise<void> {
    for (const lease of this.leases) {
      if (await lease.held()) continue;
      await this.release();
      throw new LeaseLostError('another publisher holds the lease now');
    }
  }

  async release(): Promise<void> {
    this.isLeading = false;
    for (const lease of this.leases) await lease.release();
  }
}

/** "svc" in ASCII and a lock number, because advisory locks are shared by the whole database. */
const LOCK = [0x737663, 1] as const;

/**
 * One publisher per registry, on any host: a session-level advisory lock, which the database releases
 * when the connection ends.
 */
export class DatabaseLease implements Lease {
  private isTaken = false;

  /** @param sql a pool of one connection for leases only, because the connection holds the lock */
  constructor(
    private readonly sql: Pool,
    private readonly lock: readonly [number, number] = LOCK,
  ) {
    if (sql.options.max !== 1) throw new Error('the lease needs a pool of one connection');
  }

  async take(): Promise<boolean> {
    if (await this.held()) return true;
    // A standby server would grant this lock while the primary grants it too, and may lack published leaves.
    await requirePrimary(this.sql);
    const [row] = await this.sql<{ locked: boolean }[]>`
      select pg_try_advisory_lock(${this.lock[0]}::int, ${this.lock[1]}::int) as locked`;
    return (this.isTaken = row?.locked === true);
  }

  /** Queries the lock itself: after a failover, a session of another server may have the same process id. */
  async held(): Promise<boolean> {
    if (!this.isTaken) return false;
    try {
      const [row] = await this.sql<{ held: boolean }[]>`
        select exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
          and classid = ${this.lock[0]}::int::oid and objid = ${this.lock[1]}::int::oid) as held`;
      return row?.held === true;
    } catch {
      return false;
    }
  }

  async release(): Promise<void> {
    if (!this.isTaken) return;
    this.isTaken = false;
    try {
      await this.sql`select pg_advisory_unlock(${this.lock[0]}::int, ${this.lock[1]}::int)`;
    } catch {
      // Ignores the error, because the lock ended with the lost connection.
    }
  }
}
