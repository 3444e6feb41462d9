import cluster from 'node:cluster';
import { facadeConfig, type FacadeConfig } from '#runtime/config';
import { reportReady, runProgram } from '#runtime/process/lifecycle';
import { superviseProcesses } from './facade/processes.js';
import { serve } from './facade/serve.js';

/** Longer than a process of several is given. */
const DRAIN_MS = 40_000;

// Node would end the process at once when the one that started it is gone; we drain first.
if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;

const code = await runProgram(
  'facade',
  async (program) => {
    const isOneOfSeveral = cluster.isWorker;
    const given = facadeConfig();
    // One of several is asked by the first, which has the listener for all of them.
    const config: FacadeConfig =
      isOneOfSeveral && given.ops.kind === 'listener'
        ? { ...given, ops: { kind: 'starter' } }
        : given;
    program.drainAs(config.drain);
    const url =
      config.processes === 1 || isOneOfSeveral
        ? await serve(config, program)
        : await superviseProcesses(config, program);
    program.log.info({ url, pid: process.pid }, 'the public API serves');
    reportReady(url);
  },
  { drainMs: DRAIN_MS },
);
process.exit(code);
