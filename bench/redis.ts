import { spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { toolPath } from './tools.js';

/** A Redis of the bench's own. */
export interface BenchRedis {
  url: string;
  pid: number;
  version: string;
  /** Forgets all that it holds: what one measurement left is not the next one's. */
  empty(): Promise<void>;
  close(): Promise<void>;
}

/** What operators are told to run it with: it persists, and never evicts what waits. */
export const REDIS_SETTINGS = {
  appendonly: 'yes',
  appendfsync: 'everysec',
  'maxmemory-policy': 'noeviction',
} as const;

const START_MS = 10_000;

/**
 * Starts redis-server on a free loopback port, with its data in `dir`.
 *
 * @throws OperatorError when it is not installed
 */
export async function startBenchRedis(dir: string): Promise<BenchRedis> {
  await mkdir(dir, { recursive: true });
  const port = await freePort();
  const settings = Object.entries({
    bind: '127.0.0.1',
    port: String(port),
    dir,
    save: '',
    ...REDIS_SETTINGS,
  });
  const server = spawn(
    toolPath('redis-server'),
    settings.flatMap(([name, value]) => [`--${name}`, value]),
    { stdio: 'ignore' },
  );
  let isGone = false;
  const gone = new Promise<void>((resolve) => {
    server.once('error', () => resolve()).once('exit', () => resolve());
  }).then(() => void (isGone = true));
  const close = async (): Promise<void> => {
    if (!isGone) server.kill('SIGTERM');
    await gone;
  };
  const url = `redis://127.0.0.1:${String(port)}`;
  try {
    const version = await untilServing(url, () => isGone);
    return { url, pid: server.pid ?? 0, version, empty: () => empty(url), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Its version. */
async function untilServing(url: string, isGone: () => boolean): Promise<string> {
  const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 20 });
  client.on('error', () => undefined);
  const deadline = performance.now() + START_MS;
  try {
    void client.connect().catch(() => undefined);
    while (client.status !== 'ready') {
      if (isGone()) throw new Error('redis-server ended while it started');
      if (performance.now() > deadline) throw new Error('redis-server did not start');
      await sleep(10);
    }
    const info = await client.info('server');
    return /redis_version:(\S+)/.exec(info)?.[1] ?? 'unknown';
  } finally {
    client.disconnect();
  }
}

async function empty(url: string): Promise<void> {
  const client = new Redis(url);
  await client.flushall();
  client.disconnect();
}

/** One that was free a moment ago: redis-server takes no port of the system's choice. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no port is free');
  return address.port;
}
