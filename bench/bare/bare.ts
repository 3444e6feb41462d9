import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { BareMessage, BareTask } from './bare-task.js';
import { startChild } from '../service/child.js';
import { builtFile } from '../service/programs.js';
import type { BenchRegistry } from '../service/registry.js';
import { resourcesOf } from '../figures/resources.js';

/** What the bare loop came to, all of its processes together. */
export interface Bare {
  processes: number;
  /** Rows committed a second. */
  rate: number;
  /** Microseconds a row, of the processes and of Postgres. */
  loopMicros: number;
  postgresMicros: number;
}

/**
 * Runs the bare loop, one process on each core, over the registry's own Postgres: the same items,
 * parsed, canonicalized, hashed, signed, verified and inserted, and nothing else.
 *
 * @throws Error when a process fails
 */
export async function runBare(
  registry: Pick<BenchRegistry, 'ownerUrl' | 'tenantId' | 'postgresPid'>,
  times: { warmUpSeconds: number; seconds: number },
  signal: AbortSignal,
): Promise<Bare> {
  const processes = availableParallelism();
  const postgresBefore = resourcesOf(registry.postgresPid)?.cpuSeconds ?? 0;
  const run = randomBytes(6).toString('hex');
  const found = await Promise.all(
    Array.from({ length: processes }, (_, i) => {
      const source = { tenantId: registry.tenantId, run: `${run}${String(i)}` };
      return bareProcess({ databaseUrl: registry.ownerUrl, source, ...times }, signal);
    }),
  );
  const sum = (of: (one: Finished) => number): number =>
    found.reduce((all, one) => all + of(one), 0);
  const postgresSeconds = (resourcesOf(registry.postgresPid)?.cpuSeconds ?? 0) - postgresBefore;
  return {
    processes,
    rate: sum((one) => one.rows / one.seconds),
    loopMicros: (sum((one) => one.cpuSeconds) * 1e6) / sum((one) => one.rows),
    postgresMicros: (postgresSeconds * 1e6) / sum((one) => one.allRows),
  };
}

type Finished = Extract<BareMessage, { rows: number }>;

async function bareProcess(task: BareTask, signal: AbortSignal): Promise<Finished> {
  let heard: BareMessage = { failed: 'it ended without a word' };
  const child = startChild({
    file: builtFile('bench/bare/bare-loop'),
    onMessage: (message) => (heard = message as BareMessage),
  });
  const stop = (): void => void child.stop();
  signal.addEventListener('abort', stop);
  child.send(task);
  await child.exited;
  signal.removeEventListener('abort', stop);
  signal.throwIfAborted();
  if ('failed' in heard) throw new Error(`the bare loop failed: ${heard.failed}`);
  return heard;
}
