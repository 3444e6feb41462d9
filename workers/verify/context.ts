import { MAX_AHEAD_MS } from '#protocol/evidence/verify';
import { formatTime } from '#protocol/time';
import type { ProofCrypto } from '#protocol/verify';
import type { WakeableSleep } from '#runtime/concurrency';
import { healthCheck, Heartbeat, type Readiness } from '#runtime/ops/health';
import type { Logger } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import { pipeline, type Pool, requirePrimary, type Transaction } from '#sql/db/transaction';
import type { Signer } from '#runtime/crypto/node';

export interface VerdictSigner extends Pick<Signer, 'sign'> {
  keyId: string;
  origin: string;
  /** Validity of a snapshot in milliseconds. */
  snapshotTtl: number;
}

/** Dependencies of the verifier, which reads only the registry. */
export interface VerifyContext {
  sql: Pool;
  /** Default: no verdict entries are appended, and their signatures are not checked. */
  signer?: VerdictSigner;
  crypto: ProofCrypto;
  clock: VerdictClock;
  log: Logger;
  /** Proofs of compromised keys that no log line has reported yet. */
  voided: VoidedProofs;
  /** Sleeps between polls until an append is notified. Default: polls every `idleMs`. */
  idleSleep?: WakeableSleep;
  /** Called after each pass of the verifier's loop. */
  heartbeats?: VerifierHeartbeats;
  metrics?: VerifierMetrics;
  /** Records trace spans for the verified leaves `from` to `to` - 1. Default: no spans. */
  traced?(from: number, to: number, startedAt: number): void;
}

/** A pass that reads leaves and writes their verdicts on one connection. */
export type PassContext = Omit<VerifyContext, 'sql'> & { sql: Transaction };

/** The log is damaged: a leaf is missing, or verified leaves changed. */
export class LogDamagedError extends Error {}

export interface VerifierMetrics {
  /** Counts leaves that were verified for the first time (`log`) or again (`scrub`). */
  verified(pass: 'log' | 'scrub', passed: number, failed: number): void;
  /** Counts failed verdicts with a cause other than a compromised key. */
  failed(leaves: number): void;
}

/** Advisory lock of verdict writers, so that verdict ids commit in order. */
export const VERDICT_LOCK = 7_301_002;

/** The database's clock, which dates verdicts. */
export class VerdictClock {
  /** The last time of a verdict, and when this process read that time by `performance.now()`. */
  private last: { time: number; at: number } | null = null;

  /**
   * Takes the lock until the transaction ends. Returns the database's time in epoch milliseconds. Expiries are final,
   * so a database clock that jumps ahead counts only once the clock of this host confirms the jump: this process may
   * have been suspended, or the database's clock may have been corrected.
   */
  async lock(tx: Transaction): Promise<number> {
    const [, [{ now }]] = await pipeline(
      tx`select pg_advisory_xact_lock(${VERDICT_LOCK})`,
      tx<[{ now: Date }]>`select clock_timestamp() as now`,
    );
    const [time, at, { last }] = [now.getTime(), performance.now(), this];
    const latest = Math.max(last === null ? time : last.time + at - last.at, Date.now());
    if (time > latest + MAX_AHEAD_MS) {
      throw new OperatorError(
        `the database clock jumped ahead to ${formatTime(time)}, and the clock of this verifier is at ${formatTime(Date.now())}: correct the wrong clock, or restart the verifier if the database clock is right; until then no verdict is recorded`,
      );
    }
    this.last = { time, at };
    return time;
  }
}

/**
 * A verifier without a successful pass for this long is stalled. A pass takes far less, even on a
 * busy machine.
 */
const STALLED_MS = 10_000;

export const verifierHeartbeats = () => ({
  log: new Heartbeat(STALLED_MS),
  expiryScan: new Heartbeat(STALLED_MS),
  // Passes over a small log are up to 8 s apart.
  scrub: new Heartbeat(2 * STALLED_MS),
  /** Appends verdict entries; fails while the verifier key is not active in the log. */
  verdict: new Heartbeat(STALLED_MS),
});

export type VerifierHeartbeats = ReturnType<typeof verifierHeartbeats>;

/** Ready when the database accepts writes and every pass of the loop succeeded recently. */
export function verifierReadiness(
  sql: Pool,
  heartbeats: VerifierHeartbeats,
): () => Promise<Readiness> {
  const database = healthCheck(() => requirePrimary(sql));
  return async () => {
    const dependencies = { database: await database() };
    const rounds = {
      log: heartbeats.log.state,
      upkeep: heartbeats.expiryScan.state,
      scrub: heartbeats.scrub.state,
      verdict: heartbeats.verdict.state,
    };
    const ready =
      dependencies.database === 'up' && Object.values(rounds).every((state) => state === 'up');
    return {
      ready,
      details: { status: ready ? 'ready' : 'unavailable', dependencies, rounds },
    };
  };
}

/** Collects the proofs that compromised keys void, to log one line per key and not per proof. */
export class VoidedProofs {
  private readonly ranges = new Map<string, { from: number; to: number; count: number }>();

  add(keyId: string, leafIndex: number): void {
    const range = this.ranges.get(keyId) ?? { from: leafIndex, to: leafIndex, count: 0 };
    this.ranges.set(keyId, {
      from: Math.min(range.from, leafIndex),
      to: Math.max(range.to, leafIndex),
      count: range.count + 1,
    });
  }

  /** Logs the leaf range and the number of proofs of each key, and resets. */
  report(log: Logger): void {
    for (const [keyId, range] of this.ranges) {
      log.warn(
        { key_id: keyId, ...range },
        'verifier: a signing key is compromised; its proofs in this range fail',
      );
    }
    this.ranges.clear();
  }
}
