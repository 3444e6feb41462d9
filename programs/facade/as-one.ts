import { asOne, countersOf } from '#runtime/ops/registry';
import { processSource } from '#runtime/ops/over-ipc';
import type { MetricOfMoment, OpsSource } from '#runtime/ops/health';
import type { Supervised } from '#runtime/process/supervise';

/** A healthy process answers immediately; shorter than the listener's timeout. */
const TIMEOUT_MS = 2_000;

interface Report {
  pid: number | undefined;
  metrics: MetricOfMoment[];
}

/**
 * Presents several processes as one program. Counters of an exited process stay in the sum, as last
 * collected: a decrease would look like a counter reset. For the same reason, there is no sum while
 * a running process does not answer.
 */
export function processesAsOne(processes: readonly Supervised[]): OpsSource {
  const lastReports = new Map<string, Report>();
  let ended: MetricOfMoment[] = [];

  async function gather(): Promise<MetricOfMoment[]> {
    const serving = processes.filter((one) => one.isReady());
    const answers = await Promise.all(
      serving.map(async (one): Promise<[string, Report]> => {
        const child = one.process();
        if (child === null) throw new Error(`${one.name} exited`);
        const found = await processSource(child, TIMEOUT_MS).metrics();
        return [one.name, { pid: child.pid, metrics: found }];
      }),
    );
    for (const [name, now] of answers) {
      const before = lastReports.get(name);
      if (before !== undefined && before.pid !== now.pid) {
        ended = await asOne([ended, countersOf(before.metrics)]);
      }
      lastReports.set(name, now);
    }
    const away = [...lastReports].filter(([name]) => !serving.some((one) => one.name === name));
    return asOne([
      ...answers.map(([, { metrics: ofOne }]) => ofOne),
      ...away.map(([, { metrics: ofOne }]) => countersOf(ofOne)),
      ended,
    ]);
  }

  // One collection at a time: the counters of an exited process are added once.
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
      // One ready process is enough to accept connections.
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
