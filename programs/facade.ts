import cluster from 'node:cluster';
import { unreadProblem } from '#api/public/http/answer';
import { createPublicServer } from '#api/public/server';
import { opsPortOf, opsPortsOf, type FacadeConfig, facadeConfig } from '#runtime/config';
import { listen, probePorts } from '#runtime/http/server';
import { openOps } from '#runtime/ops/ops';
import { systemClock } from '#runtime/clock';
import { type ProgramContext, reportReady, runProgram } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { supervise, type Supervised } from '#runtime/process/supervise';
import { publicMetrics } from './metrics/http.js';
import { snapshotGauges } from './metrics/snapshot.js';
import { snapshotSourceOf } from '#api/public/snapshot/remote-source';

/** Drain time of a process before it is killed. */
const PROCESS_GRACE_MS = 30_000;

/** Consecutive failed starts of a process after which the program fails, unless another process serves. */
const MAX_FAILED_STARTS = 4;

/**
 * Keeps `processes` processes serving one port, and resolves with their URL once all of them serve.
 * The processes accept connections from one shared socket, which this process opens without handling traffic. While one
 * process is replaced, the others accept connections.
 */
async function superviseProcesses(config: FacadeConfig, program: ProgramContext): Promise<string> {
  const { log } = program;
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  // Chosen once, so that all processes share the port and a conflict is reported once.
  const { listenAddress: host, publicPort } = config;
  const [port = publicPort] = await probePorts([
    { host, port: publicPort, portVariable: 'PUBLIC_PORT' },
    ...opsPortsOf(config.ops, config.publicProcesses),
  ]);
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
        // Ctrl-C reaches the children directly (one process group): after `signal` fires, their exit is expected.
        signal: program.signal,
        launch: ({ env }) => cluster.fork(env).process,
        graceMs: config.drain.delayMs + (config.drain.deadlineMs ?? PROCESS_GRACE_MS),
        onFailedStart: (times) => {
          if (times < MAX_FAILED_STARTS || children.some((one) => one.isReady())) return;
          program.fail(
            new OperatorError(
              `No process serves lookups, and facade ${number} exited ${times} times in a row before it was ready: see its output.`,
            ),
          );
        },
      },
    );
    children.push(child);
    return child;
  };

  // Starts one process first, so that a configuration error is reported only once.
  const url = await start(1).ready;
  program.signal.throwIfAborted();
  const others = Array.from({ length: config.publicProcesses - 1 }, (_, at) => start(at + 2));
  await Promise.all(others.map((child) => child.ready));
  if (url === undefined) throw new Error('facade 1 did not report its URL');
  return url;
}

async function serve(config: FacadeConfig, program: ProgramContext): Promise<string> {
  const ops = await openOps('facade', config.ops, program);
  const snapshotSource = await snapshotSourceOf(config.snapshotPlace ?? config.snapshotUrl ?? '');
  const publicServer = createPublicServer({
    snapshotSource,
    logVkey: config.pins,
    publicUrl: config.publicUrl,
    clock: systemClock,
    log: program.log,
    metrics: publicMetrics(ops.registry),
    stopping: program.signal,
  });
  snapshotGauges(ops.registry, systemClock, () => {
    const { current } = publicServer.poller;
    return current && { ...current, treeSize: current.log.size };
  });
  program.onStop(() => publicServer.close());
  ops.readyWhen(() => publicServer.readiness());
  await publicServer.start();
  const server = await listen(publicServer.handler, {
    host: config.listenAddress,
    port: config.publicPort,
    portVariable: 'PUBLIC_PORT',
    drainDelayMs: config.drain.delayMs,
    answerUnread: unreadProblem,
  });
  program.onStop(() => server.close());
  return server.url;
}

/** Longer than `PROCESS_GRACE_MS`, because it includes the drain of all processes. */
const DRAIN_MS = 40_000;

// Without this flag, Node ends the process without draining as soon as the parent exits.
if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;

const code = await runProgram(
  'facade',
  async (program) => {
    const config = facadeConfig();
    program.drainAs(config.drain);
    const url =
      config.publicProcesses === 1 || cluster.isWorker
        ? await serve(config, program)
        : await superviseProcesses(config, program);
    program.log.info({ url }, 'listening');
    reportReady(url);
  },
  { drainMs: DRAIN_MS },
);
process.exit(code);
