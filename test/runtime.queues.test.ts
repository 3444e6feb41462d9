import { randomBytes } from 'node:crypto';
import { fork, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { QueueConfig } from '#runtime/config';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '#runtime/embedded/index';
import {
  grantQueueAccess,
  migrateQueues,
  openAdmitEvents,
  openAdmitQueue,
  openAdmitWorker,
  QueueUnavailableError,
} from '#runtime/queues';

const redisUrl = process.env['TEST_REDIS_URL'];
if (!redisUrl) console.warn('TEST_REDIS_URL is not set: the queue tests on Redis are skipped');

let home: string;
let database: EmbeddedPostgres;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-queues-'));
  database = await startEmbeddedPostgres({ dataDir: home, settings: { fsync: 'off' } });
  const sql = postgres(database.superuserUrl, { max: 1, onnotice: () => undefined });
  for (const role of ['svc_engine', 'svc_worker']) {
    await sql.unsafe(`create role ${role} login password '${database.rolePassword(role)}'`);
  }
  await sql.end();
  await Promise.all([migrateQueues(database.superuserUrl), migrateQueues(database.superuserUrl)]);
  await grantQueueAccess(database.superuserUrl, ['svc_engine', 'svc_worker', 'svc_absent']);
});

afterAll(async () => {
  await database.destroy();
  await rm(home, { recursive: true, force: true });
});

const proofId = (): string => {
  const hex = randomBytes(16).toString('hex');
  return `${hex.slice(0, 12)}7${hex.slice(13, 16)}8${hex.slice(17)}`;
};

const log = { warn: () => undefined };

async function until(condition: () => boolean, ms = 10_000): Promise<void> {
  const deadline = Date.now() + ms;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('it did not happen in time');
    await sleep(10);
  }
}

const backends: { name: string; skip: boolean; config: (role: string) => QueueConfig }[] = [
  {
    name: 'Postgres',
    skip: false,
    config: (role) => ({ databaseUrl: database.urlFor(role), redisUrl: null }),
  },
  {
    name: 'Redis',
    skip: !redisUrl,
    config: () => ({ databaseUrl: 'postgres://nobody@127.0.0.1:1/none', redisUrl: redisUrl ?? '' }),
  },
];

for (const backend of backends) {
  describe.skipIf(backend.skip)(`the admit queue on ${backend.name}`, () => {
    const opened: { close(): Promise<void> }[] = [];
    const keep = <T extends { close(): Promise<void> }>(one: T): T => {
      opened.push(one);
      return one;
    };

    afterEach(async () => {
      for (const one of opened.splice(0).reverse()) await one.close();
    });

    it('carries ids to a worker and news of them back, with no more than the programs’ roles', async () => {
      const settled = new Map<string, string[] | undefined>();
      const events = keep(
        openAdmitEvents(backend.config('svc_engine'), (jobId, ids) => settled.set(jobId, ids), {
          log,
        }),
      );
      const seen: string[][] = [];
      const worker = keep(
        openAdmitWorker(
          backend.config('svc_worker'),
          (ids) => {
            seen.push(ids);
            return Promise.resolve();
          },
          { concurrency: 2, log },
        ),
      );
      await Promise.all([events.ready, worker.ready]);
      const queue = keep(openAdmitQueue(backend.config('svc_engine'), { log }));
      const ids = [proofId(), proofId()];
      const jobId = await queue.add(ids);
      await until(() => seen.length > 0);
      expect(seen).toEqual([ids]);
      // The event itself is only a hint, but when one comes it names the ids.
      for (let i = 0; i < 20 && !settled.has(jobId); i += 1) {
        await queue.add([proofId()]);
        await sleep(100);
      }
      expect(settled.size).toBeGreaterThan(0);
      for (const news of settled.values())
        expect(news).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), ...(news ?? []).slice(1)]);
      await queue.ping();
      await until(() => seen.length >= 1);
      expect(await queue.depth()).toBe(0);
    });

    it('tries a failed job again, and keeps no job that is done', async () => {
      const queue = keep(openAdmitQueue(backend.config('svc_engine'), { log }));
      let calls = 0;
      const worker = keep(
        openAdmitWorker(
          backend.config('svc_worker'),
          () => {
            calls += 1;
            return calls === 1 ? Promise.reject(new Error('not now')) : Promise.resolve();
          },
          { concurrency: 1, log },
        ),
      );
      await worker.ready;
      await queue.add([proofId()]);
      await until(() => calls === 2);
      expect(await queue.depth()).toBe(0);
    });

    it('never hands a forged job to the handler', async () => {
      const seen: string[][] = [];
      const worker = keep(
        openAdmitWorker(
          backend.config('svc_worker'),
          (ids) => {
            seen.push(ids);
            return Promise.resolve();
          },
          { concurrency: 1, log },
        ),
      );
      await worker.ready;
      const honest = [proofId()];
      const queue = keep(openAdmitQueue(backend.config('svc_engine'), { log }));
      for (const data of [
        {},
        { ids: 'all' },
        { ids: [1] },
        { ids: ["'; drop table proof"] },
        { ids: [] },
        null,
      ]) {
        await forge(backend.name, backend.config('svc_engine'), data);
      }
      await queue.add(honest);
      await until(() => seen.length > 0);
      expect(seen).toEqual([honest]);
    });

    it('hands the job of a worker that was killed to another within seconds', async () => {
      const queue = keep(openAdmitQueue(backend.config('svc_engine'), { log }));
      const ids = [proofId()];
      await queue.add(ids);
      const victim = await startVictim(backend.config('svc_worker'));
      victim.kill('SIGKILL');
      const seen: string[][] = [];
      const began = Date.now();
      const worker = keep(
        openAdmitWorker(
          backend.config('svc_worker'),
          (found) => {
            seen.push(found);
            return Promise.resolve();
          },
          { concurrency: 1, log },
        ),
      );
      await worker.ready;
      await until(() => seen.length > 0, 25_000);
      expect(seen).toEqual([ids]);
      expect(Date.now() - began).toBeLessThan(20_000);
    });
  });
}

/** Puts a job into the queue as somebody would who got at it. */
async function forge(backend: string, config: QueueConfig, data: unknown): Promise<void> {
  if (backend === 'Redis') {
    const client = new Redis(config.redisUrl ?? '', { maxRetriesPerRequest: null });
    const queue = new Queue('admit', { connection: client, prefix: '{svc}' });
    await queue.add('forged', data);
    await queue.close();
    client.disconnect();
    return;
  }
  const sql = postgres(config.databaseUrl, { max: 1, onnotice: () => undefined });
  await sql`select bullmq.add_job('admit', ${`forged-${randomBytes(4).toString('hex')}`}, 'forged',
    ${sql.json(data as never)}::jsonb, '{}'::jsonb, 0, 0, ${Date.now()}, 1, null, null, null, null, null, false)`;
  await sql.end();
}

/** A process that takes one job and never finishes it. */
async function startVictim(config: QueueConfig): Promise<ChildProcess> {
  const script = join(home, `victim-${randomBytes(4).toString('hex')}.mjs`);
  const module = join(import.meta.dirname, '../dist/runtime/queues.js');
  await writeFile(
    script,
    `import { openAdmitWorker } from ${JSON.stringify(module)};
     openAdmitWorker(${JSON.stringify(config)}, () => { process.send('taken'); return new Promise(() => {}); }, { concurrency: 1 });`,
  );
  const child = fork(script, { stdio: 'inherit', execArgv: [] });
  await new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', () => reject(new Error('the victim ended early')));
  });
  return child;
}

describe('a queue that is away', () => {
  const nowhere: QueueConfig[] = [
    { databaseUrl: 'postgres://nobody:x@127.0.0.1:1/none', redisUrl: null },
    { databaseUrl: 'postgres://nobody:x@127.0.0.1:1/none', redisUrl: 'redis://127.0.0.1:1' },
  ];

  for (const config of nowhere) {
    it(`is told from one that works within seconds (${config.redisUrl ?? 'Postgres'})`, async () => {
      const queue = openAdmitQueue(config, { log });
      const began = Date.now();
      await expect(queue.add([proofId()])).rejects.toBeInstanceOf(QueueUnavailableError);
      await expect(queue.ping()).rejects.toBeInstanceOf(QueueUnavailableError);
      await queue.close();
      expect(Date.now() - began).toBeLessThan(15_000);
    });

    it(`does not hold up closing (${config.redisUrl ?? 'Postgres'})`, async () => {
      const worker = openAdmitWorker(config, () => Promise.resolve(), { concurrency: 1, log });
      const events = openAdmitEvents(config, () => undefined, { log });
      await sleep(300);
      const began = Date.now();
      await Promise.all([worker.close(), events.close()]);
      expect(Date.now() - began).toBeLessThan(12_000);
    });
  }
});
