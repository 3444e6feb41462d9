import { singleFlight } from '#runtime/concurrency/promises';
import type { MetricOfMoment, OpsSource, Readiness } from '#runtime/ops/health';
import { processSource } from '#runtime/ops/over-ipc';
import { asOne, besideEachOther, countersOf } from '#runtime/ops/registry';
import type { Supervised } from '#runtime/process/supervise';

/** A healthy process answers immediately; shorter than the listener's timeout. */
const TIMEOUT_MS = 2_000;

function sourceOf(child: Supervised): OpsSource | null {
  const running = child.process();
  return running && processSource(running, TIMEOUT_MS);
}

const NO_ANSWER: Readiness = { ready: false, details: { status: 'no answer' } };

async function readinessOf(child: Supervised): Promise<Readiness> {
  const found = await sourceOf(child)
    ?.readiness()
    .catch(() => null);
  return found ?? NO_ANSWER;
}

const statusOf = (ready: boolean): string => (ready ? 'ready' : 'unavailable');

/**
 * All programs of `npm start` behind one listener. The label `program` separates values; a
 * program that does not answer has no values and is named by readiness.
 */
export function programsTogether(programs: readonly Supervised[]): OpsSource {
  return {
    metrics: async () => {
      const found = await Promise.all(
        programs.map(
          async (one) =>
            (await sourceOf(one)
              ?.metrics()
              .catch(() => null)) ?? [],
        ),
      );
      return besideEachOther(found);
    },
    readiness: async () => {
      const found = await Promise.all(programs.map(readinessOf));
      const ready = found.length > 0 && found.every((one) => one.ready);
      const details = programs.map(({ name }, at) => [name, found[at]?.details]);
      return { ready, details: { status: statusOf(ready), programs: Object.fromEntries(details) } };
    },
  };
}

/**
 * Presents several processes as one program. Counters of an exited process stay in the sum, as last
 * collected: a decrease would look like a counter reset. For the same reason, there is no sum while
 * a running process does not answer.
 */
export function processesAsOne(processes: readonly Supervised[]): OpsSource {
  const lastReports = new Map<string, { pid: number | undefined; metrics: MetricOfMoment[] }>();
  let ended: MetricOfMoment[] = [];

  async function gather(): Promise<MetricOfMoment[]> {
    const serving = processes.filter((one) => one.isReady());
    const answers = await Promise.all(
      serving.map(async (one) => {
        const [pid, source] = [one.pid(), sourceOf(one)];
        if (source === null) throw new Error(`${one.name} exited`);
        return { name: one.name, pid, metrics: await source.metrics() };
      }),
    );
    for (const { name, ...now } of answers) {
      const before = lastReports.get(name);
      if (before !== undefined && before.pid !== now.pid) {
        ended = await asOne([ended, countersOf(before.metrics)]);
      }
      lastReports.set(name, now);
    }
    const away = [...lastReports].filter(([name]) => !serving.some((one) => one.name === name));
    return asOne([
      ...answers.map(({ metrics }) => metrics),
      ...away.map(([, { metrics }]) => countersOf(metrics)),
      ended,
    ]);
  }

  return {
    // One collection at a time: the counters of an exited process are added once.
    metrics: singleFlight(gather),
    readiness: async () => {
      const found = await Promise.all(
        processes.map(async (one) => (one.isReady() ? readinessOf(one) : NO_ANSWER)),
      );
      // One ready process is enough to accept connections.
      const ready = found.some((one) => one.ready);
      const details = found.map((one) => one.details);
      return { ready, details: { status: statusOf(ready), processes: details } };
    },
  };
}
