import { execFile } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { OperatorError } from '#runtime/process/operator-error';
import { urlOf } from '../harness/child.js';
import type { Cleanup } from '../harness/cleanup.js';
import { startProgram } from '../harness/stack.js';
import { untilReady } from '../harness/public-api.js';
import type { BenchRegistry } from '../harness/registry.js';
import { toolPath } from '../harness/tools.js';
import { LOAD_CORE } from '../harness/wrk.js';

/** A server on the core that compared servers share, one at a time. */
interface PinnedServer {
  url: string;
  pid: number;
}

export const SERVER_CORE = 0;

/** The public API as operators run it, in one process. */
export async function startPublicApi(
  registry: BenchRegistry,
  recentLookupLimit: number,
  cleanup: Cleanup,
): Promise<PinnedServer> {
  const server = startProgram('facade', registry, { recentLookupLimit }, cleanup);
  const url = await urlOf(server);
  await pin(server.pid, SERVER_CORE);
  await untilReady(url);
  return { url, pid: server.pid };
}

/** Runs verifier and publisher, which keep the snapshot valid, on the core of the load. */
export async function keepPublished(
  registry: BenchRegistry,
  recentLookupLimit: number,
  cleanup: Cleanup,
): Promise<void> {
  for (const name of ['verifier', 'publisher'] as const) {
    const program = startProgram(name, registry, { recentLookupLimit }, cleanup);
    await program.ready;
    await pin(program.pid, LOAD_CORE);
  }
}

/**
 * Pins a process with its present and future threads to a core.
 *
 * @throws OperatorError on a machine with one core
 */
export async function pin(pid: number, core: number): Promise<void> {
  if (availableParallelism() < 2) {
    throw new OperatorError('The server and its load need a core each; this machine has one.');
  }
  const args = ['--all-tasks', '--cpu-list', '--pid', String(core), String(pid)];
  await promisify(execFile)(toolPath('taskset'), args);
}
