import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { lock } from 'proper-lockfile';
import type { Logger } from '#runtime/process/log';
import { mapDbErrors } from '#sql/db/errors';
import type { Pool } from '#sql/db/transaction';
import { LeaseLostError } from '../errors.js';

/** A claim that at most one publisher at a time holds. */
export interface Lease {
  /** Takes the claim if it is free. True when it is held, also from before. */
  take(): Promise<boolean>;
  /** Whether it is still held: asked again right before each step that cannot be taken back. */
  held(): Promise<boolean>;
  release(): Promise<void>;
}

/** Without a heartbeat for so long, the publisher that locked the directory is dead. */
const STALE_MS = 5_000;

/** One publisher per snapshot directory: two would replace each other's manifests. */
export class DirectoryLease implements Lease {
  private unlock: (() => Promise<void>) | undefined;

  constructor(
    private readonly root: string,
    private readonly log: Logger,
  ) {}

  async take(): Promise<boolean> {
    if (this.unlock !== undefined) return true;
    await mkdir(this.root, { recursive: true });
    try {
      const unlock = await lock(this.root, {
        lockfilePath: join(this.root, '.lock'),
        stale: STALE_MS,
        update: STALE_MS / 5,
        onCompromised: (error) => {
          // Somebody believed this process to be dead, and may be publishing already.
          this.log.error({ err: error }, 'the lock on the snapshot directory was taken away');
          this.unlock = undefined;
        },
      });
      this.unlock = unlock;
      return true;
    } catch (error) {
      if ((error as { code?: unknown }).code === 'ELOCKED') return false;
      throw error;
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
      // It was taken away and nobody had noticed yet.
      const { code } = error as { code?: unknown };
      if (code !== 'ERELEASED' && code !== 'ENOTACQUIRED') throw error;
    }
  }
}

/** All claims together: who has only some of them gives them back. */
export class Leadership {
  private leads = false;

  constructor(private readonly claims: readonly Lease[]) {}

  /** Whether it led when it last looked; only `require` shows that it still does. */
  get isLeading(): boolean {
    return this.leads;
  }

  async take(): Promise<boolean> {
    try {
      for (const claim of this.claims) {
        if (await claim.take()) continue;
        await this.release();
        return false;
      }
      this.leads = true;
      return true;
    } catch (error) {
      // One that cannot lead must not keep a healthy one from it.
      await this.release();
      throw error;
    }
  }

  /** Throws `LeaseLostError` unless every claim is still held. */
  async require(): Promise<void> {
    for (const claim of this.claims) {
      if (await claim.held()) continue;
      await this.release();
      throw new LeaseLostError('another publisher leads now');
    }
  }

  async release(): Promise<void> {
    this.leads = false;
    for (const claim of this.claims) await claim.release();
  }
}

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
