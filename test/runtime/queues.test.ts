import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { QueueConfig } from '#runtime/config';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '#runtime/embedded/start';
import { grantQueueAccess, migrateQueues } from '#runtime/queue/backend';
import { type Handler, openAdmitQueue, openConsumer } from '#runtime/queue/queues';
import { openRedis } from '#runtime/queue/redis';
import { startRedis, type TestRedis } from '../fixtures/redis.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testFolder } from '../fixtures/test-folder.js';
import { firstHostDown, twoHosts } from '../fixtures/two-hosts.js';

const withRedis = Boolean(process.env['TEST_REDIS_URL']);

const home = await testFolder();
/** A PostgreSQL server for this file only, because the tests of this file kill the server. */
let database: EmbeddedPostgres;
let redis: TestRedis | null = null;

beforeAll(async () => {
  database = await startEmbeddedPostgres({ dataDir: home });
  const sql = postgres(database.superuserUrl, { max: 1, onnotice: () => undefined });
  for (const role of ['svc_engine', 'svc_worker']) {
    await sql.unsafe(`create role ${role} login password '${database.rolePassword(role)}'`);
  }
  await sql.end();
  // Runs two concurrent migrations, like programs that start at the same time.
  const ownerUrl = firstHostDown(database.superuserUrl);
  await Promise.all([migrateQueues(ownerUrl), migrateQueues(ownerUrl)]);
  await grantQueueAccess(database.superuserUrl);
  if (withRedis) redis = await startRedis();
});

afterAll(async () => {
  await redis?.close();
  await database.destroy();
});

const proofId = (): string => {
  const hex = randomBytes(16).toString('hex');
  return `${hex.slice(0, 12)}7${hex.slice(13, 16)}8${hex.slice(17)}`;
};

const log = { warn: () => undefined };
const unreachable = 'postgres://user:x@127.0.0.1:1/none';

interface Backend {
  name: string;
  skip: boolean;
  config(role: string): QueueConfig;
  /** Kills the server and restarts it. */
  outage(): Promise<void>;
  /** Adds a job to the queue like an attacker with access to the queue. */
  forge(data: unknown, name?: string): Promise<void>;
}

/** The retry options of the service's jobs. Even with these options, rejected jobs must not be retried. */
const triedAgain = { attempts: 5, backoff: { type: 'fixed', delay: 600_000 } };

const backends: Backend[] = [
  {
    name: 'Postgres',
    skip: false,
    config: (role) => ({ databaseUrl: twoHosts(database.urlFor(role)), redisUrl: null }),
    outage: async () => {
      const { port } = database;
      process.kill(database.pid, 'SIGKILL');
      await database.exited;
      database = await startEmbeddedPostgres({ dataDir: home, port });
    },
    forge: async (data, name = 'revoke') => {
      const sql = postgres(database.urlFor('svc_engine'), { max: 1 });
      const id = `forged-${randomBytes(4).toString('hex')}`;
      await sql`
        select bullmq.add_job('admit', ${id}, ${name}, ${JSON.stringify(data)}::text::jsonb,
          ${sql.json(triedAgain)}::jsonb, 0, 0, ${Date.now()}, 1, null, null, null, null, null, false)`;
      await sql.end();
    },
  },
  {
    name: withRedis ? 'Redis' : 'Redis (skipped: TEST_REDIS_URL is not set)',
    skip: !withRedis,
    config: () => ({ databaseUrl: unreachable, redisUrl: redis?.url ?? '' }),
    outage: async () => {
      await redis?.kill();
      await redis?.start();
    },
    forge: async (data, name = 'revoke') => {
      const client = new Redis(redis?.url ?? '', { maxRetriesPerRequest: null });
      const queue = new Queue('admit', { connection: client, prefix: '{svc}' });
      await queue.add(name, data, triedAgain);
      await queue.close();
      client.disconnect();
    },
  },
];

it.skipIf(!withRedis).each([
  ['the server lacks', '', 99, 'ERR DB index is out of range'],
  ['the user may not select', 'narrow:pw@', 1, 'NOPERM'],
])(
  'queue > writes to no other database when REDIS_URL names one that %s',
  async (_, user, number, reason) => {
    await redis?.client.call('acl', 'setuser', 'narrow', 'on', '>pw', '~*', '+@all', '-select');
    const errors: string[] = [];
    const onError = (error: Error) => errors.push(error.message);
    const url = `${redis?.url.replace('//', `//${user}`) ?? ''}/${number}`;
    const client = openRedis(url, { whenAway: 'wait', onError });
    // Waits for a connection.
    void client.set('key', 'value').catch(() => undefined);
    const expected = `the server rejects the database number in REDIS_URL: ${reason}`;
    await expect.poll(() => errors.length).toBeGreaterThan(2);
    expect(errors.filter((error) => !error.startsWith(expected))).toEqual([]);
    expect(await redis?.client.dbsize()).toBe(0);
    client.disconnect();
  },
);

it('admit queue on Postgres with two hosts > works while either host is down', async () => {
  const [one, two] = [
    await TcpProxy.open(database.port, 'other'),
    await TcpProxy.open(database.port, 'other'),
  ];
  const config = (role: string): QueueConfig => {
    const hosts = `@127.0.0.1:${one.port},127.0.0.1:${two.port}/`;
    return { databaseUrl: database.urlFor(role).replace(/@[^/]+\//, hosts), redisUrl: null };
  };
  const seen: string[] = [];
  const revocations: Handler = ([id = '']) => Promise.resolve(void seen.push(id));
  const queue = openAdmitQueue(config('svc_engine'), { log });
  const worker = openConsumer(
    config('svc_worker'),
    'admit',
    { revocations },
    { concurrency: 1, log },
  );
  for (const down of [one, two, one]) {
    down.cut(true);
    const id = proofId();
    const addAndTake = async (): Promise<boolean> => {
      await queue.addRevocations([id]).catch(() => undefined);
      return seen.includes(id);
    };
    await expect.poll(addAndTake, { interval: 200 }).toBe(true);
    down.cut(false);
  }
  await worker.close();
  await queue.close();
  await Promise.all([one.close(), two.close()]);
});

describe.each(backends)('admit queue on $name', (backend) => {
  const opened: { close(): Promise<void> }[] = [];
  const keep = <T extends { close(): Promise<void> }>(one: T): T => {
    opened.push(one);
    return one;
  };

  afterEach(async () => {
    for (const one of opened.splice(0).reverse()) await one.close();
  });

  const openQueue = () => keep(openAdmitQueue(backend.config('svc_engine'), { log }));

  function openWorker(revocations: Handler) {
    const options = { concurrency: 1, log };
    return keep(openConsumer(backend.config('svc_worker'), 'admit', { revocations }, options));
  }

  /** A worker that succeeds and records its ids. */
  function openRecorder() {
    const seen: string[][] = [];
    const worker = openWorker((ids) => {
      seen.push(ids);
      return Promise.resolve();
    });
    return { seen, ready: worker.ready };
  }

  it.skipIf(backend.skip)('quarantines at once a job that is not a list of ids', async () => {
    const { seen, ready } = openRecorder();
    await ready;
    const honest = [proofId()];
    const many = Array.from({ length: 1_001 }, proofId);
    for (const ids of ['all', [1], ["'; drop table proof"], [], many, [proofId(), '']]) {
      await backend.forge({ ids });
    }
    for (const data of [{}, [], 'ids', null, 7]) await backend.forge(data);
    for (const name of ['forged', 'constructor', '__proto__', '']) {
      await backend.forge({ ids: [proofId()] }, name);
    }
    const queue = openQueue();
    await queue.addRevocations(honest);
    await expect.poll(() => seen.length).toBeGreaterThan(0);
    expect(seen).toEqual([honest]);
    expect((await queue.stats()).jobs).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it.skipIf(backend.skip)(
    'resumes after its server is killed, and retries a failed job',
    async () => {
      const tried: string[] = [];
      const worker = openWorker(([id = '']) => {
        tried.push(id);
        const isFirst = tried.indexOf(id) === tried.length - 1;
        return isFirst ? Promise.reject(new Error('not now')) : Promise.resolve();
      });
      const queue = openQueue();
      await Promise.all([worker.ready, queue.ping()]);
      await backend.outage();
      const sendOne = async (): Promise<number> => {
        if (tried.length === 0) await queue.addRevocations([proofId()]).catch(() => undefined);
        return tried.length - new Set(tried).size;
      };
      await expect.poll(sendOne, { interval: 200 }).toBeGreaterThan(0);
      const jobs = { waiting: 0, active: 0, delayed: 0 };
      await expect.poll(async () => (await queue.stats()).jobs).toMatchObject(jobs);
    },
  );

  it.skipIf(backend.skip)('lets a consumer close while it opens', async () => {
    const config = JSON.stringify(backend.config('svc_worker'));
    const script = `
      import { openConsumer } from '#runtime/queue/queues';
      const options = { concurrency: 1, log: { warn: () => undefined } };
      const consumer = openConsumer(${config}, 'admit', {}, options);
      await Promise.all([consumer.ready, consumer.close()]);
      console.log('closed');`;
    // In another process, because a consumer that does not close can keep the event loop busy for ever.
    const args = ['--input-type=module', '--eval', script];
    const limits = { timeout: 15_000, killSignal: 'SIGKILL' } as const;
    const { stdout } = await promisify(execFile)(process.execPath, args, limits);
    expect(stdout).toBe('closed\n');
  });

  if (backend.name !== 'Postgres') return;

  it('works whatever the settings of the database', async () => {
    const sql = postgres(database.superuserUrl, { max: 1 });
    const own = {
      default_transaction_isolation: ['repeatable read', 'read committed'],
      datestyle: ['SQL, DMY', 'ISO%'],
      bytea_output: ['escape', 'hex'],
      standard_conforming_strings: ['off', 'on'],
      array_nulls: ['off', 'on'],
    };
    const settings = Object.entries(own);
    const checks = settings.map(
      ([name, [, value]]) => `current_setting('${name}') like '${value!}'`,
    );
    const { pathname } = new URL(database.superuserUrl);
    const alter = `alter database ${pathname.slice(1)}`;
    await sql.unsafe(`
      alter table bullmq.job add constraint settings check (${checks.join(' and ')}) not valid;
      ${settings.map(([name, [value]]) => `${alter} set ${name} = '${value!}';`).join('')}`);
    const { seen } = openRecorder();
    const ids = [proofId()];
    await openQueue().addRevocations(ids);
    await expect.poll(() => seen).toEqual([ids]);
    await sql.unsafe(`
      alter table bullmq.job drop constraint settings;
      ${settings.map(([name]) => `${alter} reset ${name};`).join('')}`);
    await sql.end();
  });

  it('uses TLS only with sslmode in the URL, and ignores PGSSLMODE', async () => {
    await expect(migrateQueues(`${database.superuserUrl}?sslmode=verify-full`)).rejects.toThrow(
      'does not support SSL',
    );
    vi.stubEnv('PGSSLMODE', 'require');
    onTestFinished(() => void vi.unstubAllEnvs());
    await migrateQueues(database.superuserUrl);
    const { seen } = openRecorder();
    const ids = [proofId()];
    await openQueue().addRevocations(ids);
    await expect.poll(() => seen).toEqual([ids]);
  });

  it('finds a job whose notification was lost', async () => {
    const lost = [proofId()];
    await backend.forge({ ids: lost });
    const sql = postgres(database.superuserUrl, { max: 1 });
    await sql`update bullmq.job set state = 'failed'`;
    const { seen } = openRecorder();
    const waits = () => sql`
      select from pg_stat_activity where usename = 'svc_worker' and state = 'idle'
        and query like '%next_delay%'`;
    await expect.poll(waits).not.toEqual([]);
    await sql`update bullmq.job set state = 'waiting'`;
    await sql.end();
    await expect.poll(() => seen).toEqual([lost]);
  });
});
