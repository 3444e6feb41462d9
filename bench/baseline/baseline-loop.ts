import { availableParallelism } from 'node:os';
import { startChild } from '../harness/child.js';
import { cpuSecondsOf } from '../harness/cpu.js';
import { newRun } from '../harness/items.js';
import type { BenchRegistry } from '../harness/registry.js';
import { sumOf } from '../harness/statistics.js';
import type { BaselineReport, BaselineTask } from './baseline-process.js';

export type Baseline = Awaited<ReturnType<typeof runBaselineLoop>>;

/**
 * Runs the baseline loop, one process per core, over the registry's Postgres. The loop parses, canonicalizes, hashes,
 * signs, verifies and inserts items like the items of the batch scenarios, without the service.
 *
 * @throws Error when a process fails
 */
export async function runBaselineLoop(
  registry: Pick<BenchRegistry, 'ownerUrl' | 'tenantId' | 'postgresPid'>,
  times: { warmUpSeconds: number; seconds: number },
  signal: AbortSignal,
) {
  const processes = availableParallelism();
  const postgresBefore = cpuSecondsOf(registry.postgresPid);
  const run = newRun();
  const reports = await Promise.all(
    Array.from({ length: processes }, (_, i) => {
      const source = { tenantId: registry.tenantId, run: `${run}${String(i)}` };
      return runProcess({ databaseUrl: registry.ownerUrl, source, ...times }, signal);
    }),
  );
  const postgresSeconds = cpuSecondsOf(registry.postgresPid) - postgresBefore;
  const rows = sumOf(reports, (one) => one.rows);
  return {
    processes,
    rate: sumOf(reports, (one) => one.rows / one.seconds),
    loopMicros: (sumOf(reports, (one) => one.cpuSeconds) * 1e6) / rows,
    postgresMicros: (postgresSeconds * 1e6) / sumOf(reports, (one) => one.allRows),
  };
}

async function runProcess(task: BaselineTask, signal: AbortSignal): Promise<BaselineReport> {
  const reports: BaselineReport[] = [];
  const child = startChild({
    module: 'bench/baseline/baseline-process',
    task,
    onMessage: (message) => reports.push(message as BaselineReport),
  });
  // SIGKILL is safe: PostgreSQL rolls back an open transaction when the connection ends.
  const kill = (): void => void process.kill(child.pid, 'SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  await child.finished.finally(() => signal.removeEventListener('abort', kill));
  const [report] = reports;
  if (report === undefined) throw new Error('the baseline loop reported nothing');
  return report;
}
