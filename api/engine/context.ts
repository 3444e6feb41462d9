import type { Clock } from '#runtime/process/clock';
import type { RedisClient } from '#runtime/queue/redis';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import type { Pool } from '#sql/db/transaction';
import type { RevocationSettlement } from '#sql/lifecycle/revocations';
import type { PdfRenderer } from './pdf/pool.js';
import type { EngineMetrics } from './metrics.js';
import type { TenantConnections } from '#sql/db/tenant-connections';
import type { OutcomeWaiter } from './admission/wait.js';

/** Everything the engine uses, made and closed by whoever starts it. */
export interface EngineContext {
  /** Connections for admissions and for authentication: nothing else that a tenant requests uses them. */
  sql: Pool;
  /** Connections for everything else that tenants request. */
  tenantSql: TenantConnections;
  /** What wakes the workers. It carries ids only, and losing it loses nothing. */
  queue: Pick<AdmitQueue, 'add' | 'addBatches' | 'addRevocations' | 'ping'>;
  waiting: OutcomeWaiter;
  /** The same for revocations, by request id. */
  revocations: OutcomeWaiter<RevocationSettlement>;
  log: Logger;
  clock: Clock;
  /** From ADMISSIONS_PAUSED: no lane is open, whatever the database contains. */
  admissionsPaused: boolean;
  /** How long an admission is waited for before it is answered with 202. */
  waitMs: number;
  /** Admissions in flight travel together for at most so long, and at most so many. */
  coalesceMs: number;
  coalesceItems: number;
  /** The largest request body, in bytes. */
  bodyLimit: number;
  /** The largest body of a batch; each of its items is a body like any other. */
  batchLimit: number;
  /** Batches that are made durable at a time. Bodies in memory have room for so many of the largest. */
  batchesAtOnce: number;
  /** Batches of one tenant at a time: each is in memory until it is durable. */
  batchesOfOneTenant: number;
  /** The log's C2SP verifier key, which exports name; null when this engine was not told. */
  logVkey: string | null;
  /** Log keys of before, named in exports under checkpoints that they signed. */
  retiredLogVkeys: readonly string[];
  /** Aborted once the program is told to stop: from then on it is not ready. */
  stopping?: AbortSignal;
  /** Lays out papers, away from the event loop. */
  pdf: PdfRenderer;
  /** Where the public API is reached, without a slash at the end: papers lead there. */
  publicUrl: string;
  /** Requests a second of a tenant that has no limit of its own. */
  rateLimit: number;
  /** Where all engines count requests together; null: this one counts for itself. */
  redis: RedisClient | null;
  /** Admissions waiting to be settled from which on no more are accepted. */
  maxQueuedAdmissions: number;
  /** Absent: nothing is counted. */
  metrics?: EngineMetrics;
}

export const ENGINE_DEFAULTS = {
  waitMs: 10_000,
  coalesceMs: 2,
  coalesceItems: 256,
  // More than the longest valid body of either lane needs, every character of it escaped. The rest
  // could only be white space, which is kept as received and read again by worker and verifier.
  bodyLimit: 32 * 1024,
  batchLimit: 32 * 1024 * 1024,
  batchesAtOnce: 4,
  batchesOfOneTenant: 2,
  logVkey: null,
  retiredLogVkeys: [],
  // Half of what one log takes: one tenant alone never leaves the others without.
  rateLimit: 5_000,
  redis: null,
  maxQueuedAdmissions: 100_000,
} as const;
