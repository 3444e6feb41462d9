import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';

/** Metrics of the public API. Routes are documented paths, never request paths: those may have tokens. */
export interface PublicMetrics {
  /** Runs on the hot path of every lookup: increment only. */
  countRequest(route: string | null, method: string, status: number | null): void;
  observeDuration(route: string | null, ms: number): void;
  /** Counts a lookup by its `verification_status`. */
  countVerdict(status: string): void;
}

/** The dependencies of the public API operations: a snapshot, but no database, queue or secret. */
export interface PublicContext {
  source: SnapshotSource;
  poller: SnapshotPoller;
  /** Generic lookups cover at most this many recent proofs; the publisher has a limit too. */
  recentLookupLimit: number;
  /** The public base URL for shared links, without a trailing slash; null: shared links are relative. */
  publicUrl: string | null;
  clock: Clock;
  log: Logger;
  metrics?: PublicMetrics;
  /** Aborted when shutdown begins; the server then reports that it is not ready. */
  stopping?: AbortSignal;
}

/** One request and its response. */
export interface Exchange {
  ctx: PublicContext;
  req: IncomingMessage;
  res: ServerResponse;
  /** The documented path, for metrics and the log; null for an unknown path. */
  route: string | null;
  /** The request may contain a share token outside its URL: no cache may store the response. */
  secret?: boolean;
}
