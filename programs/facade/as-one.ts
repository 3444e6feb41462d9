import { asOne, countersOf } from '#runtime/ops/combine';
import { processSource } from '#runtime/ops/over-ipc';
import type { MetricOfMoment, OpsSource } from '#runtime/ops/health';
import type { Supervised } from '#runtime/process/supervise';

/** A process that serves answers in a moment; less than the listener's own patience. */
const TIMEOUT_MS = 2_000;

interface Told {
  pid: number | undefined;
  metrics: MetricOfMoment[];
}

/**
 * Several processes of a facade as one program. What a process counted goes on counting after it,
 * as far as it was told: were it taken away, the sum would shrink, and whoever reads it would take
 * the rest for new. For the same reason there is no sum without a process that should answer.
 */
export function processesAsOne(processes: readonly Supervised[]): OpsSource {
  const lastTold = new Map<string, Told>();
  let ended: MetricOfMoment[] = [];

  async function gather(): Promise<MetricOfMoment[]> {
    const serving = processes.filter((one) => one.isReady());
    const told = await Promise.all(
      serving.map(async (one): Promise<[string, Told]> => {
        const child = one.process();
        if (child === null) throw new Error(`${one.name} has just ended`);
        const found = await processSource(child, TIMEOUT_MS).metrics();
        return [one.name, { pid: child.pid, metrics: found }];
      }),
    );
    for (const [name, now] of told) {
      const before = lastTold.get(name);
      if (before !== undefined && before.pid !== now.pid) {
        ended = await asOne([ended, countersOf(before.metrics)]);
      }
      lastTold.set(name, now);
    }
    const away = [...lastTold].filter(([name]) => !serving.some((one) => one.name === name));
    return asOne([
      ...told.map(([, { metrics: ofOne }]) => ofOne),
      ...away.map(([, { metrics: ofOne }]) => countersOf(ofOne)),
      ended,
    ]);
  }

  // One at a time: what a process counted before it ended is put aside once.
  let gathering: Promise<MetricOfMoment[]> | null = null;
  const metrics = (): Promise<MetricOfMoment[]> =>
    (gathering ??= gather().finally(() => {
      gathering = null;
    }));

  return {
    metrics,
    readiness: async () => {
      const found = await Promise.all(
        processes.map(async (one) => {
          const child = one.isReady() ? one.process() : null;
          const state =
            child &&
            (await processSource(child, TIMEOUT_MS)
              .readiness()
              .catch(() => null));
          return state ?? { ready: false, says: { status: 'no answer' } };
        }),
      );
      // Whoever connects is taken by one that serves.
      const ready = found.some((one) => one.ready);
      return {
        ready,
        says: {
          status: ready ? 'ready' : 'unavailable',
          processes: found.map(({ says }) => says),
        },
      };
    },
  };
}
