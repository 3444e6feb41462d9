import type { ProgramContext } from '#runtime/process/lifecycle';
import { Tally } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';
import { Sampled } from '#runtime/ops/sampled';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { databaseTime } from '#sql/log/verdicts';
import { addGauges } from './gauges.js';

type Program = Pick<ProgramContext, 'signal' | 'log' | 'onStop'>;

/** Reads values periodically until the program stops; without metrics, their value stays null. */
export interface Readings {
  every<T>(ms: number, reading: string, read: () => Promise<T>): Sampled<T>;
}

const SAID_EVERY_MS = 60_000;

/** A value that cannot be read disappears from the metrics, and is counted here. */
export function readings(registry: Registry, { signal, log, onStop }: Program): Readings {
  const errors = new Tally(
    registry,
    {
      name: 'svc_metrics_collection_errors_total',
      help: 'Failed readings of gauges, which are absent meanwhile',
    },
    ['reading'],
  );
  function every<T>(everyMs: number, reading: string, read: () => Promise<T>): Sampled<T> {
    const failures = errors.of({ reading });
    let saidAt = -Infinity;
    const sampled = new Sampled<T>();
    const onError = (error: unknown): void => {
      failures.n += 1;
      if (performance.now() - saidAt < SAID_EVERY_MS) return;
      saidAt = performance.now();
      log.warn({ err: error, reading }, 'metrics: gauge reading failed');
    };
    const running = sampled.run(read, signal, { everyMs, onError });
    onStop(() => running);
    return sampled;
  }
  return { every };
}

/** Statement timeout for a gauge. */
const STATEMENT_MS = 3_000;

/**
 * A single connection for readings, so that they and the program's work do not delay each other,
 * plus the clock skew that every program with a database reports.
 */
export function databaseReadings(
  registry: Registry,
  program: Program,
  url: string,
  application: string,
): Readings & { sql: Pool } {
  const sql = connect(url, { application, max: 1, statementTimeoutMs: STATEMENT_MS });
  program.onStop(() => sql.end({ timeout: 1 }));
  const all = readings(registry, program);
  const skew = all.every(5_000, 'clock', async () => {
    const began = Date.now();
    const there = await databaseTime(sql);
    return ((began + Date.now()) / 2 - there) / 1_000;
  });
  addGauges(registry, [
    [
      'svc_clock_skew_seconds',
      'Clock of this machine minus clock of the database',
      () => skew.value,
    ],
  ]);
  return { ...all, sql };
}
