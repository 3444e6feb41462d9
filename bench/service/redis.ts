import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort } from './free-port.js';
import { startInstalled } from './installed-server.js';

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
  const server = startInstalled(
    'redis-server',
    settings.flatMap(([name, value]) => [`--${name}`, value]),
  );
  const url = `redis://127.0.0.1:${String(port)}`;
  try {
    const version = await untilServing(url, server.isGone);
    const { pid, close } = server;
    return { url, pid, version, empty: () => empty(url), close };
  } catch (error) {
    await server.close();
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
