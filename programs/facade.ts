import cluster from 'node:cluster';
import { facadeConfig } from '#runtime/config';
import { reportReady, runProgram } from '#runtime/process/lifecycle';
import { superviseProcesses } from './facade/processes.js';
import { serve } from './facade/serve.js';

/** Longer than for one process of several. */
const DRAIN_MS = 40_000;

// Otherwise Node ends the process as soon as its parent exits, without draining.
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
    program.log.info({ url, pid: process.pid }, 'public API started');
    reportReady(url);
  },
  { drainMs: DRAIN_MS },
);
process.exit(code);
