import type { Tracing } from '#runtime/ops/tracing';
import { logRarely, type Logger } from '#runtime/process/log';
import type { Db } from '#sql/db/transaction';
import { type Trace, tracesOf, tracesOfLeaves } from '#sql/ops/traces';
import type { AdmitContext } from '#workers/admit/context';

/** Reads the contexts of traced admissions in the background; a failure loses only spans. */
function eachTrace(
  log: Logger,
  read: () => Promise<Trace[]>,
  record: (trace: Trace) => void,
): void {
  read().then(
    (traces) => traces.forEach(record),
    (error: unknown) => logRarely(log, 'warn', { err: error }, 'tracing: spans are lost'),
  );
}

/** Records the wait of each admission for a worker, and its decision. */
export function tracedDecisions(
  tracing: Tracing,
  sql: Db,
  log: Logger,
): NonNullable<AdmitContext['traced']> {
  return (decisions, startedAt) => {
    const endedAt = Date.now();
    const byId = new Map(decisions.map((one) => [one.proofId, one]));
    eachTrace(
      log,
      () => tracesOf(sql, [...byId.keys()]),
      (trace) => {
        const { acceptedAt, outcome } = byId.get(trace.proofId)!;
        tracing.record('queue', trace, Math.min(acceptedAt, startedAt), startedAt);
        tracing.record('decide', trace, startedAt, endedAt, { outcome });
      },
    );
  };
}

/** Records that leaves `from` to `to` - 1 were verified or published. */
export function tracedLeaves(
  name: 'verify' | 'publish',
  tracing: Tracing,
  sql: Db,
  log: Logger,
): (from: number, to: number, startedAt: number) => void {
  return (from, to, startedAt) => {
    const endedAt = Date.now();
    eachTrace(
      log,
      () => tracesOfLeaves(sql, from, to),
      (trace) => tracing.record(name, trace, startedAt, endedAt),
    );
  };
}
