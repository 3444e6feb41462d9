import type { Tracing } from '#runtime/ops/tracing';
import { logRarely, type Logger } from '#runtime/process/log';
import type { Db } from '#sql/db/transaction';
import { type Trace, tracesOf, tracesOfLeaves } from '#sql/ops/traces';
import type { AdmitContext } from '#workers/admit/context';

/** Records spans of traced admissions in the background; a failure loses only spans. */
export function spanRecorder(tracing: Tracing, sql: Db, log: Logger) {
  const eachOf = (traces: Promise<Trace[]>, record: (trace: Trace) => void): void =>
    void traces.then(
      (found) => found.forEach(record),
      (error: unknown) => logRarely(log, 'warn', { err: error }, 'tracing: spans are lost'),
    );
  /** Records the wait of each admission for a worker, and its decision. */
  const decisions: NonNullable<AdmitContext['traced']> = (decided, startedAt) => {
    const endedAt = Date.now();
    const byId = new Map(decided.map((one) => [one.proofId, one]));
    eachOf(tracesOf(sql, [...byId.keys()]), (trace) => {
      const { acceptedAt, outcome } = byId.get(trace.proofId)!;
      tracing.record('queue', trace, Math.min(acceptedAt, startedAt), startedAt);
      tracing.record('decide', trace, startedAt, endedAt, { outcome });
    });
  };
  /** Records that leaves `from` to `to` - 1 were verified or published. */
  const leaves =
    (name: 'verify' | 'publish') =>
    (from: number, to: number, startedAt: number): void => {
      const endedAt = Date.now();
      eachOf(tracesOfLeaves(sql, from, to), (trace) =>
        tracing.record(name, trace, startedAt, endedAt),
      );
    };
  return { decisions, leaves };
}
