import type { Heartbeat } from '#sql/ops/heartbeats';

/** A program's state according to its heartbeats. Times in milliseconds. */
export interface ProgramFacts {
  program: string;
  /** Instances with a recent heartbeat. */
  alive: number;
  /** Age of the most recent heartbeat; null without one. */
  last_heartbeat_ms: number | null;
  /** Uptime of the oldest live instance. */
  up_ms: number | null;
  /** Parts reported as down, failing, stalled or silent, each with the number of instances. */
  faults: Record<string, number>;
}

/** Programs that record heartbeats. */
export const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher'] as const;

/** Five heartbeats. */
const ALIVE_MS = 10_000;

export function programFacts(heartbeats: readonly Heartbeat[], now: number): ProgramFacts[] {
  return PROGRAMS.map((program) => {
    const all = heartbeats.filter((one) => one.program === program);
    // Ignores heartbeats from the future, recorded before the database's clock was set back.
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

/** Finds members of a readiness document that report a fault, at any depth: `queue down`. */
function faultsIn(readiness: object): string[] {
  // Publish cycles fail as well, but only because of the missing key.
  if ('unknown_signer' in readiness) {
    return [`${UNKNOWN_SIGNER} ${String(readiness.unknown_signer)}`];
  }
  return Object.entries(readiness).flatMap(([name, value]: [string, unknown]) => {
    if (FAULTS.includes(value)) return [`${name} ${String(value)}`];
    return typeof value === 'object' && value !== null ? faultsIn(value) : [];
  });
}
