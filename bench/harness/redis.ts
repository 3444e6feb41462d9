import { mkdir } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { freePort, startInstalled } from './tools.js';

export interface BenchRedis {
  url: string;
  pid: number;
  /** Deletes everything: no scenario may inherit another's queue. */
  flush(): Promise<unknown>;
  close(): Promise<void>;
}

/** What operators are advised to set: persist, and never evict a waiting job. */
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
export async function startBenchRedis(dir: string): Promise<BenchRedis> {
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
