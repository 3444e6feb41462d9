import { startChild, urlOf, type Child } from '../service/child.js';
import { pin, SERVER_CORE } from './pinning.js';
import { builtFile, startProgram } from '../service/programs.js';
import type { ConstantHttpTask, ExpressFacadeTask } from './public-server-tasks.js';
import type { BenchRegistry } from '../service/registry.js';
import { untilSnapshotIsServed } from '../service/serving.js';

/** A server on the core of the servers. */
export interface PinnedServer {
  url: string;
  pid: number;
  close(): Promise<unknown>;
}

type Published = Pick<BenchRegistry, 'snapshotDir' | 'vkeys'>;

/** The facade as it is run, in one process. */
export async function startPinnedFacade(
  registry: BenchRegistry,
  recentLookupLimit: number,
  profileDir?: string,
): Promise<PinnedServer> {
  const server = await pinned(startProgram('facade', registry, { recentLookupLimit, profileDir }));
  await untilSnapshotIsServed(server.url);
  return server;
}

/** The same, without the listener's shortcut to the lookups. */
export async function startExpressFacade(
  { snapshotDir, vkeys }: Published,
  recentLookupLimit: number,
): Promise<PinnedServer> {
  const child = startChild({ file: builtFile('bench/lookups/express-facade') });
  const task: ExpressFacadeTask = {
    snapshotDir,
    recentLookupLimit,
    logVkey: vkeys.log,
    snapshotVkey: vkeys.snapshot,
  };
  child.send(task);
  const server = await pinned(child);
  await untilSnapshotIsServed(server.url);
  return server;
}

/** Node's own HTTP with the answer that a facade has to one lookup. */
export async function startConstantHttp(lookupUrl: string): Promise<PinnedServer> {
  const response = await fetch(lookupUrl);
  const body = Buffer.from(await response.arrayBuffer()).toString('latin1');
  const child = startChild({ file: builtFile('bench/lookups/constant-http') });
  const task: ConstantHttpTask = { headers: ownHeaders(response), body };
  child.send(task);
  return pinned(child);
}

/** What Node adds of itself to every answer. */
const ADDED = new Set(['connection', 'date', 'keep-alive']);

function ownHeaders(response: Response): string[] {
  return [...response.headers].filter(([name]) => !ADDED.has(name)).flat();
}

async function pinned(child: Child): Promise<PinnedServer> {
  try {
    const url = await urlOf(child, 'a server');
    await pin(child.pid, SERVER_CORE);
    return { url, pid: child.pid, close: () => child.stop() };
  } catch (error) {
    await child.stop();
    throw error;
  }
}
