import { besideEachOther } from '#runtime/ops/registry';
import { processSource } from '#runtime/ops/over-ipc';
import type { OpsSource } from '#runtime/ops/health';
import type { Supervised } from '#runtime/process/supervise';

/** Shorter than the listener's timeout. */
const TIMEOUT_MS = 2_000;

/**
 * All programs of `npm start` behind one listener. The label `program` separates values; a
 * program that does not answer has no values and is named by readiness.
 */
export function programsTogether(programs: readonly Supervised[]): OpsSource {
  const sources = (): { name: string; source: OpsSource | null }[] =>
    programs.map((one) => {
      const child = one.process();
      return { name: one.name, source: child && processSource(child, TIMEOUT_MS) };
    });
  return {
    metrics: async () => {
      const found = await Promise.all(
        sources().map(async ({ source }) => (await source?.metrics().catch(() => [])) ?? []),
      );
      return besideEachOther(found);
    },
    readiness: async () => {
      const found = await Promise.all(
        sources().map(async ({ name, source }) => {
          const state = await source?.readiness().catch(() => null);
          return { name, state: state ?? { ready: false, says: { status: 'no answer' } } };
        }),
      );
      const ready = found.length > 0 && found.every(({ state }) => state.ready);
      return {
        ready,
        says: {
          status: ready ? 'ready' : 'unavailable',
          programs: Object.fromEntries(found.map(({ name, state }) => [name, state.says])),
        },
      };
    },
  };
}
