import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { lock } from 'proper-lockfile';
import type { Logger } from '#runtime/log';
import { LeaseLostError } from './stopped.js';

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
