import { execFile } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { OperatorError } from '#runtime/process/operator-error';
import { urlOf, type Child } from '../harness/child.js';
import type { Cleanup } from '../harness/command.js';
import { startPeer, startProgram } from '../harness/stack.js';
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
  const server = await pinned(startProgram('facade', registry, { recentLookupLimit }), cleanup);
  await untilReady(server.url);
  return server;
}

/** Headers that Node adds to every answer. */
const ADDED = new Set(['connection', 'date', 'keep-alive']);

/** Node's HTTP server with one constant answer, that of a lookup. */
export async function startConstant(lookupUrl: string, cleanup: Cleanup): Promise<PinnedServer> {
  const response = await fetch(lookupUrl);
  const body = Buffer.from(await response.arrayBuffer()).toString('latin1');
  const headers = [...response.headers].filter(([name]) => !ADDED.has(name)).flat();
  return pinned(startPeer({ kind: 'constant', headers, body }), cleanup);
}

async function pinned(child: Child, cleanup: Cleanup): Promise<PinnedServer> {
  cleanup.push(() => child.stop());
  const url = await urlOf(child);
  await pin(child.pid, SERVER_CORE);
  return { url, pid: child.pid };
}

/** Runs verifier and publisher, which keep the snapshot valid, on the core of the load. */
export async function keepPublished(
  registry: BenchRegistry,
  recentLookupLimit: number,
  cleanup: Cleanup,
): Promise<void> {
  for (const name of ['verifier', 'publisher'] as const) {
    const program = startProgram(name, registry, { recentLookupLimit });
    cleanup.push(() => program.stop());
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
