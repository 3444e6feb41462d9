import cluster from 'node:cluster';
import type { FacadeConfig } from '#runtime/config';
import { listen } from '#runtime/http/server';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { serveOps } from '#runtime/ops/ops';
import { supervise, type Supervised } from '#runtime/process/supervise';
import { processesAsOne } from './as-one.js';

/** None of the processes can be brought up; what they wrote says why. */
export class NothingServesError extends OperatorError {
  override name = 'NothingServesError';
}

/** What a process of several may take to drain before it is killed. */
const PROCESS_GRACE_MS = 30_000;

/** Starts in a row that may fail while no other process serves. */
const MAX_FAILED_STARTS = 4;

/**
 * Keeps so many processes serving one port, and returns where they do once all of them do. They
 * accept from one socket that this process opened and only they use: no connection takes a way
 * through here, and whoever connects while one of them is replaced is taken by another.
 */
export async function superviseProcesses(
  config: FacadeConfig,
  program: ProgramContext,
): Promise<string> {
  const { log } = program;
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  const port = await freePort(config);
  const children: Supervised[] = [];
  program.onStop(() => Promise.all(children.map((child) => child.stop())));

  await serveOps(config.ops, program, processesAsOne(children));

  const start = (number: number): Supervised => {
    const child = supervise(
      { name: `facade ${number}`, file: '', env: { PUBLIC_PORT: String(port) } },
      {
        log,
        // They share our process group: what is typed at a terminal reaches them too.
        signal: program.signal,
        launch: ({ env }) => cluster.fork(env).process,
        graceMs: config.drain.delayMs + (config.drain.deadlineMs ?? PROCESS_GRACE_MS),
        onFailedStart: (times) => {
          if (times < MAX_FAILED_STARTS || children.some((one) => one.isReady())) return;
          program.fail(
            new NothingServesError(
              `No process serves, and facade ${number} ended ${times} times in a row before it was ready: see what it wrote.`,
            ),
          );
        },
      },
    );
    children.push(child);
    return child;
  };

  // The first alone: what is wrong with the configuration is said once.
  const url = await start(1).ready;
  program.signal.throwIfAborted();
  const others = Array.from({ length: config.processes - 1 }, (_, at) => start(at + 2));
  await Promise.all(others.map((child) => child.ready));
  if (url === undefined) throw new Error('facade 1 did not say where it serves');
  return url;
}

/** Asked for here, so that all processes have the same one, and a port that is taken is said once. */
async function freePort({ bind, port }: FacadeConfig): Promise<number> {
  const probe = await listen(() => undefined, { host: bind, port, portVariable: 'PUBLIC_PORT' });
  await probe.close();
  return probe.port;
}
