import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { freePort } from './free-port.js';

const hasRedis = spawnSync('redis-server', ['--version']).status === 0;

/** Whether tests that start one are left out. CI skips nothing, so there they fail instead. */
export const skipsRedis = !hasRedis && process.env['CI'] === undefined;

/** Appended to what is skipped for want of it. */
export const withoutRedis = hasRedis ? '' : ' (skipped: no redis-server here; install one)';

export interface TestRedis {
  url: string;
  /** Kills the server; what it held is lost. */
  kill(): Promise<void>;
  start(): Promise<void>;
  close(): Promise<void>;
}

/** A Redis of the test's own, so that it can be killed, and nobody else can flush it. */
export async function startRedis(): Promise<TestRedis> {
  const dir = await mkdtemp(join(tmpdir(), 'svc-redis-'));
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  let server: ChildProcess | null = null;

  const start = async (): Promise<void> => {
    const arguments_ = ['--bind', '127.0.0.1', '--port', String(port), '--dir', dir];
    server = spawn('redis-server', [...arguments_, '--save', '', '--appendonly', 'no'], {
      stdio: 'ignore',
    });
    await new Promise((resolve, reject) => {
      server?.once('spawn', resolve).once('error', reject);
    });
    const client = new Redis(url, { maxRetriesPerRequest: null, retryStrategy: () => 20 });
    client.on('error', () => undefined);
    await client.ping();
    client.disconnect();
  };
  const kill = async (): Promise<void> => {
    const dying = server;
    if (dying === null) return;
    server = null;
    const gone = new Promise((resolve) => dying.once('exit', resolve));
    dying.kill('SIGKILL');
    await gone;
  };
  await start();
  return {
    url,
    kill,
    start,
    close: async () => {
      await kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
