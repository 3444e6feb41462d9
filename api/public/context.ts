import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import type { PublicMetrics } from './metrics.js';
import type { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';

/** What an operation of the public API may use: a snapshot, and no database, queue or secret. */
export interface PublicContext {
  source: SnapshotSource;
  follower: SnapshotPoller;
  /** Generic lookups answer for at most this many of the latest proofs. */
  recentLookupLimit: number;
  /** The base of links that leave this service, without a slash at its end; null when not known. */
  publicUrl: string | null;
  sha256: Sha256;
  verify: Ed25519Verify;
  clock: Clock;
  log: Logger;
  /** Absent: nothing is counted. */
  metrics?: PublicMetrics;
  /** Aborted once the program is told to stop. */
  stopping?: AbortSignal;
}
