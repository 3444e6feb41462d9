import type { Limits } from '#runtime/concurrency';
import type { Clock } from '#runtime/clock';
import type { RedisClient } from '#runtime/queue/redis';
import type { Tracing } from '#runtime/ops/tracing';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import type { Lane } from '#sql/admissions/intake';
import type { Pool } from '#sql/db/transaction';
import type { RevocationOutcome } from '#sql/lifecycle/revocations';
import type { PdfRequest } from './pdf/render.js';
import type { OutcomeWaiter } from './admission/wait.js';

/** Dependencies and settings of the engine. The program `engine` opens and closes the dependencies. */
export interface EngineContext {
  /**
   * Connections for admissions, authentication and policy sets, so that tenants' other requests cannot starve these.
   */
  sql: Pool;
  /** Connections for tenants' other requests: at least `TENANT_CONNECTIONS.total`. */
  tenantSql: Pool;
  /** Wakes the workers. Jobs and announcements carry only ids, so the loss of a message loses no data. */
  queue: Pick<AdmitQueue, 'addBatches' | 'addRevocations' | 'ping'>;
  /** Announces pending admissions to the workers, with their request ids for log lines. */
  announce(
    proofIds: readonly string[],
    requestIds: readonly string[],
    tenants: readonly number[],
  ): Promise<void>;
  admissionOutcomes: OutcomeWaiter;
  revocationOutcomes: OutcomeWaiter<RevocationOutcome>;
  log: Logger;
  clock: Clock;
  /** Whether ADMISSIONS_PAUSED locks every environment, whatever the database contains. */
  admissionsPaused: boolean;
  /** How long a request waits for its decision before the engine responds with 202. */
  waitMs: number;
  /**
   * Up to `coalesceItems` admissions that arrive within `coalesceMs` share a transaction and an
   * announcement to the workers.
   */
  coalesceMs: number;
  coalesceItems: number;
  /** Largest batch body, in bytes. `BODY_LIMIT` applies to each item. */
  batchLimit: number;
  /** Maximum number of concurrent batch commits; times `batchLimit`, it is the memory budget for batch bodies. */
  batchesAtOnce: number;
  /** The log's C2SP vkey for exports; null if not configured. */
  logVkey: string | null;
  /** Former log keys, for exports under checkpoints that they signed. */
  retiredLogVkeys: readonly string[];
  /** Aborted when shutdown begins; `/readyz` then reports that the engine is not ready. */
  stopping?: AbortSignal;
  pdf: {
    /**
     * @param tenantNo a tenant gets at most half of all slots, so that it cannot block other tenants
     * @throws Problem `renderer_busy`, `render_timeout`
     */
    render(request: PdfRequest, tenantNo: number): Promise<Uint8Array>;
  };
  /** Base URL of the public API without a trailing slash, for links in PDF exports. */
  publicUrl: string;
  /** Default rate limit of a tenant, in requests per second. */
  rateLimit: number;
  /** Shared rate-limit counters; null if this process counts locally. */
  redis: RedisClient | null;
  tracing?: Tracing;
  /** Number of undecided admissions at which the engine stops accepting more. */
  maxQueuedAdmissions: number;
  metrics?: EngineMetrics;
}

/**
 * Runs a query for a tenant, within `TENANT_CONNECTIONS`. The connection shows no rows of tenants: each query names its
 * tenant with `asTenants`, `readAsTenants` or `changeAsTenants`.
 */
export type QueryTenant = <Args extends unknown[], T>(
  tenantNo: number,
  work: (sql: Pool, tenantNo: number, ...args: Args) => Promise<T>,
  ...args: Args
) => Promise<T>;

/** Limits for `tenantSql`: slow reads of one tenant must not delay other tenants. */
export const TENANT_CONNECTIONS = {
  total: 8,
  perOwner: 2,
  maxWaiting: 1_000,
  timeoutMs: 2_000,
} as const satisfies Limits;

export const ENGINE_DEFAULTS = {
  waitMs: 10_000,
  coalesceMs: 25,
  coalesceItems: 256,
  batchLimit: 32 * 1024 * 1024,
  batchesAtOnce: 4,
} as const;

export type AdmissionOutcome = 'accepted' | 'replayed' | 'refused';

/** Metrics of the engine API. Labels use documented routes, never client-sent paths. */
export interface EngineMetrics {
  /**
   * `status`: null if the client disconnected first; `route`: null for an unknown path; `limit`: `tenant` if the
   * request exceeded a limit of its own tenant.
   */
  answered(
    route: string | null,
    method: string,
    status: number | null,
    limit: 'tenant' | '',
    ms: number,
  ): void;
  admissions(lane: Lane | 'batch', outcome: AdmissionOutcome, count: number): void;
}
