import { setTimeout as sleep } from 'node:timers/promises';
import { withTimeout } from '#runtime/concurrency';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { addGauges, Tally, type Registry } from '#runtime/ops/instruments';
import { connect } from '#runtime/postgres/connect';
import { type Pool, databaseTime } from '#sql/db/transaction';

export type Readings = ReturnType<typeof databaseReadings>;

const WARN_EVERY_MS = 60_000;
const READING_MS = 4_000;
const STATEMENT_MS = 3_000;
/**
 * The stall timeout of most programs: a slow reading must not end a program earlier than its other statements would.
 */
const STALL_TIMEOUT_MS = 40_000;

/** Reads gauges periodically until the program stops, and reports the clock skew. */
export function databaseReadings(
  registry: Registry,
  { signal, log, onStop }: Pick<ProgramContext, 'signal' | 'log' | 'onStop'>,
  url: string,
  application: string,
) {
  // A separate pool, so that readings and the program's work do not delay each other.
  const sql: Pool = connect(url, {
    application,
    max: 1,
    statementTimeoutMs: STATEMENT_MS,
    stallTimeoutMs: STALL_TIMEOUT_MS,
  });
  onStop(() => sql.end({ timeout: 1 }));
  const errors = new Tally(
    registry,
    'svc_metrics_collection_errors_total',
    'Failed readings of gauges; a gauge is absent after a failed reading',
    ['reading'],
  );
  /**
   * Reads a value periodically in the background, so that scrapes never wait for a query. When the
   * next reading fails or is late, the value becomes null instead of stale.
   */
  function every<T>(everyMs: number, reading: string, read: () => Promise<T>) {
    const failures = errors.of({ reading });
    let warnedAt = -Infinity;
    let latest: { value: T; until: number } | null = null;
    const warn = (error: unknown): void => {
      failures.n += 1;
      if (performance.now() - warnedAt < WARN_EVERY_MS) return;
      warnedAt = performance.now();
      log.warn({ err: error, reading }, 'metrics: gauge reading failed');
    };
    const run = async (): Promise<void> => {
      while (!signal.aborted) {
        try {
          const value = await withTimeout(read(), READING_MS);
          latest = { value, until: performance.now() + everyMs + READING_MS };
        } catch (error) {
          latest = null;
          if (!signal.aborted) warn(error);
        }
        await sleep(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
      }
    };
    const running = run();
    onStop(() => running);
    return {
      get value() {
        return latest !== null && performance.now() < latest.until ? latest.value : null;
      },
    };
  }
  const skew = every(5_000, 'clock', async () => {
    const began = Date.now();
    const there = await databaseTime(sql);
    return ((began + Date.now()) / 2 - there) / 1_000;
  });
  addGauges(registry, {
    svc_clock_skew_seconds: ['Clock of this machine minus clock of the database', () => skew.value],
  });
  return { sql, every };
}
