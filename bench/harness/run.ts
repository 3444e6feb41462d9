import { Redis } from 'ioredis';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rm, statfs } from 'node:fs/promises';
import { cpus, loadavg, tmpdir, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { freePort } from '#runtime/embedded/server';
import { dropCluster } from '#runtime/embedded/place';
import { OperatorError } from '#runtime/process/operator-error';
import { withCleanup } from './cleanup.js';
import { print, UsageError } from './command.js';
import { failedResult, type Result, type Scenario, type RunContext } from './scenario.js';
import { requireTools, startInstalled } from './tools.js';

export interface RunOptions extends Pick<RunContext, 'quick' | 'proofs' | 'signal'> {
  only: readonly string[] | undefined;
  dir: string | undefined;
}

/**
 * Runs the scenarios one after the other. A scenario that fails yields a result that misses its target.
 *
 * @throws UsageError for an unknown name, before anything starts
 * @throws OperatorError for a missing tool or a directory in memory, before anything starts
 * @throws the signal's reason when the bench is interrupted
 */
export async function runScenarios(
  all: readonly Scenario[],
  { only, dir, ...options }: RunOptions,
): Promise<Result[]> {
  const chosen = choose(all, only);
  requireTools(['redis-server', ...chosen.flatMap(({ needs = [] }) => needs)]);
  return withCleanup(async (cleanup) => {
    const root = await openDirectory(dir);
    const isTemporary = dir === undefined;
    if (isTemporary) cleanup.push(() => removeDirectory(root));
    const redis = await startBenchRedis(join(root, 'redis'));
    cleanup.push(() => redis.close());
    print(`${describeMachine()}; ${root}`);
    const results: Result[] = [];
    for (const [i, scenario] of chosen.entries()) {
      print(`[${String(i + 1)}/${String(chosen.length)}] ${scenario.name}`);
      const began = performance.now();
      results.push(...(await runOne(scenario, root, redis, options)));
      options.signal.throwIfAborted();
      if (isTemporary) await removeDirectory(join(root, scenario.name));
      print(`      ${((performance.now() - began) / 1000).toFixed(0)} s`);
    }
    return results;
  });
}

async function runOne(
  scenario: Scenario,
  root: string,
  redis: Awaited<ReturnType<typeof startBenchRedis>>,
  options: Pick<RunContext, 'quick' | 'proofs' | 'signal'>,
): Promise<Result[]> {
  const dir = join(root, scenario.name);
  const sharedDir = join(root, 'registry');
  for (const one of [dir, sharedDir]) await mkdir(one, { recursive: true, mode: 0o755 });
  // Flushes Redis, so that no scenario inherits the queue of another scenario.
  await redis.flush();
  try {
    const context = { ...options, dir, sharedDir, redis };
    const results = await withCleanup((cleanup) => scenario.run({ ...context, cleanup }));
    if (results.length === 0) throw new Error('the scenario returned no results');
    return results;
  } catch (error) {
    options.signal.throwIfAborted();
    print(error instanceof Error ? (error.stack ?? error.message) : String(error));
    return [failedResult(scenario.name, error)];
  }
}

function choose(
  all: readonly Scenario[],
  only: readonly string[] | undefined,
): readonly Scenario[] {
  if (only === undefined) return all;
  const unknown = only.filter((name) => !all.some((one) => one.name === name));
  if (unknown.length > 0) throw new UsageError(`Unknown scenario: ${unknown.join(', ')}`);
  return all.filter(({ name }) => only.includes(name));
}

function describeMachine(): string {
  const cores = cpus();
  const memory = `${(totalmem() / 2 ** 30).toFixed(0)} GiB`;
  const load = loadavg()[0]?.toFixed(1) ?? 'unknown';
  return `${String(cores.length)} × ${cores[0]?.model ?? 'unknown'}, ${memory}, load ${load}; Node ${process.version}`;
}

/** Magic numbers of file systems in memory (tmpfs, ramfs), from statfs(2). */
const IN_MEMORY = new Set([0x01021994, 0x858458f6]);

/** @throws OperatorError when the directory is in memory, where fsync costs nothing */
async function openDirectory(dir: string | undefined): Promise<string> {
  const path = dir === undefined ? await temporaryDirectory() : resolve(dir);
  await mkdir(path, { recursive: true, mode: 0o755 });
  if (!IN_MEMORY.has((await statfs(path)).type)) return path;
  if (dir === undefined) await removeDirectory(path);
  throw new OperatorError(`${path} is in memory: name a directory on a disk with --dir`);
}

async function temporaryDirectory(): Promise<string> {
  // /var/tmp is usually on a disk; /tmp may be in memory.
  const path = await mkdtemp(join(existsSync('/var/tmp') ? '/var/tmp' : tmpdir(), 'svc-bench-'));
  // PostgreSQL runs as another user when the bench runs as root.
  await chmod(path, 0o755);
  return path;
}

async function removeDirectory(dir: string): Promise<void> {
  if (!existsSync(dir)) return;
  // Embedded clusters may be outside the directory that they belong to.
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    if (entry.isDirectory()) await dropCluster(join(dir, entry.name));
  }
  await dropCluster(dir);
  await rm(dir, { recursive: true, force: true, maxRetries: 10 });
}

/** The settings that operators should use: Redis persists its data, and never evicts a waiting job. */
const REDIS_SETTINGS = {
  appendonly: 'yes',
  appendfsync: 'everysec',
  'maxmemory-policy': 'noeviction',
} as const;

/**
 * Starts redis-server on a free loopback port, with its data in `dir`.
 *
 * @throws OperatorError when it is not installed
 */
async function startBenchRedis(dir: string) {
  await mkdir(dir, { recursive: true });
  const port = String(await freePort());
  const settings = { bind: '127.0.0.1', port, dir, save: '', ...REDIS_SETTINGS };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const url = `redis://127.0.0.1:${port}`;
  const client = new Redis(url, { retryStrategy: () => 20 });
  client.on('error', () => undefined);
  const isServing = (): Promise<boolean> => Promise.resolve(client.status === 'ready');
  const server = await startInstalled('redis-server', args, isServing).catch((error: unknown) => {
    client.disconnect();
    throw error;
  });
  const close = async (): Promise<void> => {
    client.disconnect();
    await server.close();
  };
  return { url, pid: server.pid, flush: () => client.flushall(), close };
}
