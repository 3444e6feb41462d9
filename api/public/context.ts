import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { PublicMetrics } from './metrics.js';
import type { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';

/** The dependencies of the public API operations: a snapshot, but no database, queue or secret. */
export interface PublicContext {
  source: SnapshotSource;
  poller: SnapshotPoller;
  /** Generic lookups cover at most this many recent proofs. */
  recentLookupLimit: number;
  /** The public base URL for shared links, without a trailing slash; null when unknown. */
  publicUrl: string | null;
  sha256: Sha256;
  verify: Ed25519Verify;
  clock: Clock;
  log: Logger;
  metrics?: PublicMetrics;
  /** Aborted when shutdown begins. */
  stopping?: AbortSignal;
}
