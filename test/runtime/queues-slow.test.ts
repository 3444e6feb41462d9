import { type ChildProcess, fork } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueueConfig } from '#runtime/config';
import { openAdmitQueue, openConsumer, QueueUnavailableError } from '#runtime/queue/queues';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';
import { unhandledIn } from '../fixtures/unhandled.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';

/** Slow tests that run concurrently, each with its own queue. */

const PROOF_ID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const log = { warn: () => undefined };
const unreachable = 'postgres://user:x@127.0.0.1:1/none';

let home: string;
let db: TestDatabase;
let redis: TestRedis | null = null;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-queues-'));
  db = await freshDatabase();
  if (!skipsRedis) redis = await startRedis();
});
afterAll(async () => {
  await redis?.close();
  await db.drop();
  await rm(home, { recursive: true, force: true });
});

/** A process that takes one job and never completes it. */
async function startVictim(name: string, config: QueueConfig): Promise<ChildProcess> {
  const script = join(home, `victim-${name}.mjs`);
  const module = join(import.meta.dirname, '../../dist/runtime/queue/queues.js');
  await writeFile(
    script,
    `import { openConsumer } from ${JSON.stringify(module)};
     const admissions = () => { process.send('taken'); return new Promise(() => {}); };
     openConsumer(${JSON.stringify(config)}, 'admit', { admissions }, { concurrency: 1 });`,
  );
  const child = fork(script, { stdio: 'inherit', execArgv: [] });
  await new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', () => reject(new Error('the victim ended early')));
  });
  return child;
}

describe.concurrent.each([
  {
    name: 'Postgres',
    skip: false,
    config: (role: string) => ({ databaseUrl: db.urlFor(role), redisUrl: null }),
  },
  {
    name: `Redis${withoutRedis}`,
    skip: skipsRedis,
    config: () => ({ databaseUrl: unreachable, redisUrl: redis?.url ?? '' }),
  },
])('queue on $name', ({ name, skip, config }) => {
  it.skipIf(skip)(
    'gives the job of a killed worker to another worker in seconds',
    async ({ expect }) => {
      const queue = openAdmitQueue(config('svc_engine'), { log });
      await queue.add([PROOF_ID]);
      const victim = await startVictim(name.slice(0, 5), config('svc_worker'));
      victim.kill('SIGKILL');
      const seen: string[][] = [];
      const admissions = (ids: string[]) => Promise.resolve(void seen.push(ids));
      const options = { concurrency: 1, log };
      const worker = openConsumer(config('svc_worker'), 'admit', { admissions }, options);
      await expect.poll(() => seen, { timeout: 25_000 }).toEqual([[PROOF_ID]]);
      await worker.close();
      await queue.close();
    },
    60_000,
  );
});

describe.concurrent.each([
  { name: 'Postgres', config: { databaseUrl: unreachable, redisUrl: null } },
  { name: 'Redis', config: { databaseUrl: unreachable, redisUrl: 'redis://127.0.0.1:1' } },
])('unreachable queue on $name', ({ config }) => {
  it('rejects new jobs within seconds', async ({ expect }) => {
    const queue = openAdmitQueue(config, { log });
    const began = Date.now();
    await expect(queue.add([PROOF_ID])).rejects.toBeInstanceOf(QueueUnavailableError);
    await expect(queue.ping()).rejects.toBeInstanceOf(QueueUnavailableError);
    await queue.close();
    expect(Date.now() - began).toBeLessThan(15_000);
    await expect(queue.add([PROOF_ID])).rejects.toBeInstanceOf(QueueUnavailableError);
  });

  it('closes within seconds', async ({ expect }) => {
    const worker = openConsumer(config, 'admit', {}, { concurrency: 1, log });
    await sleep(300);
    const began = Date.now();
    await worker.close();
    expect(Date.now() - began).toBeLessThan(12_000);
  });
});

it('queue client on Postgres > reports an error without ending the process when its connection is lost while opening', async () => {
  const proxy = await startTcpProxy(new URL(db.urlFor('svc_engine')));
  proxy.state.cutsFirstQuery = true;
  const queue = openAdmitQueue({ databaseUrl: proxy.url, redisUrl: null }, { log });
  const unhandled = await unhandledIn(() =>
    expect(queue.ping()).rejects.toBeInstanceOf(QueueUnavailableError),
  );
  expect(unhandled).toEqual([]);
  proxy.state.cutsFirstQuery = false;
  await queue.ping();
  await queue.close();
  proxy.close();
});
