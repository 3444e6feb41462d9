import cluster from 'node:cluster';
import { opsPortOf, type FacadeConfig } from '#runtime/config';
import { listen } from '#runtime/http/server';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { supervise, type Supervised } from '#runtime/process/supervise';

/** Drain time of a process before it is killed. */
const PROCESS_GRACE_MS = 30_000;

/** Consecutive failed starts allowed while no other process serves. */
const MAX_FAILED_STARTS = 4;

/**
 * Keeps `processes` processes serving one port, and resolves with their URL once all of them serve.
 * They accept from one shared socket that this process opened, so it handles no traffic, and
 * connections go to the others while one is replaced.
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

  const start = (number: number): Supervised => {
    const child = supervise(
      {
        name: `facade ${number}`,
        file: '',
        env: { PUBLIC_PORT: String(port), ...opsPortOf(config.ops, number - 1) },
      },
      {
        log,
        // They share the process group: a signal from the terminal reaches them too.
        signal: program.signal,
        launch: ({ env }) => cluster.fork(env).process,
        graceMs: config.drain.delayMs + (config.drain.deadlineMs ?? PROCESS_GRACE_MS),
        onFailedStart: (times) => {
          if (times < MAX_FAILED_STARTS || children.some((one) => one.isReady())) return;
          program.fail(
            new OperatorError(
              `No process serves, and facade ${number} exited ${times} times in a row before it was ready: see its output.`,
            ),
          );
        },
      },
    );
    children.push(child);
    return child;
  };

  // One first, so that a configuration error is reported once.
  const url = await start(1).ready;
  program.signal.throwIfAborted();
  const others = Array.from({ length: config.publicProcesses - 1 }, (_, at) => start(at + 2));
  await Promise.all(others.map((child) => child.ready));
  if (url === undefined) throw new Error('facade 1 did not report its URL');
  return url;
}

/** Chosen here: all processes need the same port, and a conflict is reported once. */
async function freePort({ listenAddress: host, publicPort: port }: FacadeConfig): Promise<number> {
  const probe = await listen(() => undefined, { host, port, portVariable: 'PUBLIC_PORT' });
  await probe.close();
  return probe.port;
}
