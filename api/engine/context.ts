import type { Clock } from '#runtime/clock';
import type { Logger } from '#runtime/log';
import type { AdmitQueue } from '#runtime/queues';
import type { Pool } from '#sql/db';
import type { Waiting } from './wait.js';

/** Everything the engine uses, made and closed by whoever starts it. */
export interface EngineContext {
  sql: Pool;
  /** What wakes the workers. It carries ids only, and losing it loses nothing. */
  queue: Pick<AdmitQueue, 'add' | 'ping'>;
  waiting: Waiting;
  log: Logger;
  clock: Clock;
  /** LIVE_EXECUTION=locked: no lane is open, whatever the database says. */
  liveExecutionLocked: boolean;
  /** How long an admission is waited for before it is answered with 202. */
  waitMs: number;
  /** Admissions in flight travel together for at most so long, and at most so many. */
  coalesceMs: number;
  coalesceItems: number;
  /** The largest request body, in bytes. */
  bodyLimit: number;
}

export const ENGINE_DEFAULTS = {
  waitMs: 10_000,
  coalesceMs: 2,
  coalesceItems: 256,
  // Twice what the longest valid body needs, every character of it escaped. More would only be
  // white space, which is kept as received and read again by worker and verifier.
  bodyLimit: 32 * 1024,
} as const;
