import type { TileReader } from '#protocol/tiles';
import type { VerifyCrypto } from '#protocol/verify';
import type { Logger } from '#runtime/process/log';
import type { Db, Pool, Transaction } from '#sql/db/transaction';
import { readTile } from '#sql/log/log';
import type { VerifierPulses } from './readiness.js';
import type { VoidedProofs } from './voided.js';

/** What the verifier works with. It holds no key and asks nobody but the registry. */
export interface VerifyContext {
  sql: Pool;
  crypto: VerifyCrypto;
  log: Logger;
  /** Proofs of compromised keys that no log line reports yet. */
  voided: VoidedProofs;
  /** Told of each round of the loop. */
  pulses?: VerifierPulses;
  /** Absent: nothing is counted. */
  metrics?: VerifierMetrics;
  /** What a round failed with last: the same again is not worth another line. */
  lastFailure?: { message: string; at: number };
}

/** The log itself is damaged: a leaf is missing, or the past is not what was verified. */
export class LogDamagedError extends Error {
  override readonly name = 'LogDamagedError';
}

/** What is counted of the verifier. */
export interface VerifierMetrics {
  /** So many leaves have been verified, for the first time or again. */
  verified(round: 'log' | 'scrub', passed: number, failed: number): void;
  /** So many verdicts of failure were written, on leaves that no compromised key voids. */
  failed(leaves: number): void;
}

/** Held by whoever writes verdicts, so that verdict ids commit in their order. */
export const VERDICT_LOCK = 7_301_002;

/** Takes the lock until the transaction ends; returns the database's time, in epoch milliseconds. */
export async function lockVerdicts(tx: Transaction): Promise<number> {
  await tx`select pg_advisory_xact_lock(${VERDICT_LOCK})`;
  const [row] = await tx<{ now: Date }[]>`select clock_timestamp() as now`;
  if (row === undefined) throw new Error('the database told no time');
  return row.now.getTime();
}

/** Reads each stored tile once. A tile that does not exist is empty, and fails whoever needs it. */
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
