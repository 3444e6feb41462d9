import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort, startInstalled } from './tools.js';

export interface BenchRedis {
  url: string;
  pid: number;
  version: string;
  /** Deletes everything: no scenario may inherit another's queue. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

/** What operators are advised to set: persist, and never evict a waiting job. */
const REDIS_SETTINGS = {
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
  const port = String(await freePort());
  const settings = { bind: '127.0.0.1', port, dir, save: '', ...REDIS_SETTINGS };
  const server = startInstalled(
    'redis-server',
    Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]),
  );
  const url = `redis://127.0.0.1:${port}`;
  const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 20 });
  client.on('error', () => undefined);
  const close = async (): Promise<void> => {
    client.disconnect();
    await server.close();
  };
  try {
    const deadline = performance.now() + START_MS;
    void client.connect().catch(() => undefined);
    while (client.status !== 'ready') {
      if (server.hasExited() || performance.now() > deadline) {
        throw new Error(`redis-server did not start: ${server.stderr()}`);
      }
      await sleep(10);
    }
    const [, version = 'unknown'] = /redis_version:(\S+)/.exec(await client.info('server')) ?? [];
    const flush = async (): Promise<void> => void (await client.flushall());
    return { url, pid: server.pid, version, flush, close };
  } catch (error) {
    await close();
    throw error;
  }
}
