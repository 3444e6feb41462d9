import type { TileReader } from '#protocol/tiles';
import type { VerifyCrypto } from '#protocol/verify';
import type { Logger } from '#runtime/process/log';
import type { Db, Pool, Transaction } from '#sql/db/transaction';
import { readTile } from '#sql/log/log';
import type { VerifierHeartbeats } from './readiness.js';
import type { VoidedProofs } from './voided.js';

/** Dependencies of the verifier. It holds no key and reads only the registry. */
export interface VerifyContext {
  sql: Pool;
  crypto: VerifyCrypto;
  log: Logger;
  /** Proofs of compromised keys that no log line has reported yet. */
  voided: VoidedProofs;
  /** Notified after each pass of the loop. */
  pulses?: VerifierHeartbeats;
  /** Default: no metrics. */
  metrics?: VerifierMetrics;
  /** Last failure, so that the log does not repeat it at every pass. */
  lastFailure?: { message: string; at: number };
}

/** The log is damaged: a leaf is missing, or verified leaves changed. */
export class LogDamagedError extends Error {
  override readonly name = 'LogDamagedError';
}

/** Metrics of the verifier. */
export interface VerifierMetrics {
  /** Leaves verified for the first time (`log`) or again (`scrub`). */
  verified(pass: 'log' | 'scrub', passed: number, failed: number): void;
  /** Verdicts of failure that no compromised key explains. */
  failed(leaves: number): void;
}

/** Advisory lock of verdict writers, so that verdict ids commit in order. */
export const VERDICT_LOCK = 7_301_002;

/** Takes the lock until the transaction ends; returns the database's time, in epoch milliseconds. */
export async function lockVerdicts(tx: Transaction): Promise<number> {
  await tx`select pg_advisory_xact_lock(${VERDICT_LOCK})`;
  const [row] = await tx<{ now: Date }[]>`select clock_timestamp() as now`;
  if (row === undefined) throw new Error('the database returned no time');
  return row.now.getTime();
}

/** Reads each stored tile once. A missing tile reads as empty, which fails every check that needs it. */
export function tileCache(sql: Db): TileReader {
  const tiles = new Map<string, Promise<Uint8Array>>();
  return (level, index) => {
    const name = `${level}/${index}`;
    const known = tiles.get(name);
    if (known !== undefined) return known;
    const tile = readTile(sql, level, index).then((bytes) => bytes ?? new Uint8Array());
    tiles.set(name, tile);
    return tile;
  };
}
