import type { Heartbeat } from '#sql/ops/heartbeats';

/** What the heartbeats of a program report. Times in milliseconds. */
export interface ProgramFacts {
  program: string;
  /** Instances with a recent heartbeat. */
  alive: number;
  /** Of the instance that was heard of last; null when none was. */
  last_heartbeat_ms: number | null;
  /** Since the oldest instance that is alive was started. */
  up_ms: number | null;
  /** What instances report as down, failing, stalled or silent, and how many of them do. */
  faults: Record<string, number>;
}

/** These record heartbeats. */
export const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher'] as const;

/** Five heartbeats. */
const ALIVE_MS = 10_000;

export function programFacts(heartbeats: readonly Heartbeat[], now: number): ProgramFacts[] {
  return PROGRAMS.map((program) => {
    const all = heartbeats.filter((one) => one.program === program);
    // One from the future is of before the database's clock was set back.
    const alive = all.filter(({ beatAt }) => Math.abs(now - beatAt) <= ALIVE_MS);
    const faults: Record<string, number> = {};
    for (const fault of alive.flatMap(({ readiness }) => faultsIn(readiness))) {
      faults[fault] = (faults[fault] ?? 0) + 1;
    }
    const since = (times: number[], pick: (...of: number[]) => number): number | null =>
      times.length === 0 ? null : Math.max(0, now - pick(...times));
    return {
      program,
      alive: alive.length,
      last_heartbeat_ms: since(
        all.map(({ beatAt }) => beatAt),
        Math.max,
      ),
      up_ms: since(
        alive.map(({ startedAt }) => startedAt),
        Math.min,
      ),
      faults,
    };
  });
}

const FAULTS: readonly unknown[] = ['down', 'failing', 'stalled', 'silent'];

export const UNKNOWN_SIGNER = 'unknown signer';

/** Members of a readiness document that report a fault, at any depth: `queue down`. */
function faultsIn(readiness: object): string[] {
  // The publish cycles fail too, but only because of the missing key.
  if ('unknown_signer' in readiness) {
    return [`${UNKNOWN_SIGNER} ${String(readiness.unknown_signer)}`];
  }
  return Object.entries(readiness).flatMap(([name, value]: [string, unknown]) => {
    if (FAULTS.includes(value)) return [`${name} ${String(value)}`];
    return typeof value === 'object' && value !== null ? faultsIn(value) : [];
  });
}
