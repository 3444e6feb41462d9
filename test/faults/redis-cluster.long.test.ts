import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRequestCounter } from '#api/engine/http/authenticate';
import { openRedis, warnOfEviction, type RedisClient } from '#runtime/queue/redis';
import { RedisCluster, skipsRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { NO_ACTS } from './next-acts.js';
import { lasting, repeated, type Fault, type Scene } from './fault.js';
import { runFault } from './run-fault.js';
import { LOAD, openScene } from './stacks.js';

let cluster: RedisCluster;
let scene: Scene;
/** The master that has the slot of the queue's keys. */
let holder: TestRedis;

const redisClient = (whenAway: 'fail_fast' | 'wait'): RedisClient =>
  openRedis(cluster.url, { whenAway, onError: () => undefined });

beforeAll(async () => {
  if (skipsRedis) return;
  cluster = await RedisCluster.start();
  holder = await cluster.ownerOf('{svc}');
  const load = { ...LOAD, actsPerSecond: NO_ACTS };
  scene = await openScene({ ...load, withDisks: false, redisUrl: cluster.url });
}, 90_000);
afterAll(async () => {
  if (skipsRedis) return;
  await scene.world.close();
  await cluster.close();
});

const FAULTS: Fault[] = [
  repeated(
    'two workers killed, and the queue loses its other jobs',
    [2, 500],
    async ({ world, client }) => {
      await client.sendUntilAcknowledged(client.newBatch(1_500));
      for (const name of ['worker-1', 'worker-2'] as const) world.programs[name].signal('SIGKILL');
      await holder.client.flushall();
    },
    { recoverMs: 90_000 },
  ),
  lasting(
    'node of the queue killed and restarted',
    500,
    () => holder.kill(),
    async () => {
      await holder.start();
      await cluster.untilServed();
    },
  ),
  lasting(
    'node of the queue killed, and its replica takes over',
    0,
    async () => {
      await cluster.addReplicaOf(holder);
      await holder.kill();
    },
    () => cluster.untilServed(),
  ),
];

describe.skipIf(skipsRedis)(`with a Redis Cluster${withoutRedis}`, () => {
  it('queue > commits executions and batches when every key is in one hash slot', async () => {
    const { client, world } = scene;
    client.start();
    await client.nextSuccess();
    await client.sendUntilAcknowledged(client.newBatch());
    await client.stop();
    for (const master of cluster.masters) {
      expect((await master.client.keys('*')).length > 0).toBe(master === holder);
    }
    // The queue in the database exists and is unused.
    const [jobs] = await world.database.sql<{ n: number }[]>`
      select count(*)::int as n from bullmq.job`;
    expect(jobs?.n).toBe(0);
  });

  it('rate limit > is shared by all engines', async () => {
    const log = { warn: (...said: unknown[]) => expect(said).toEqual([]) };
    const clients = [redisClient('fail_fast'), redisClient('fail_fast')];
    await Promise.all(clients.map((redis) => new Promise((r) => void redis.once('ready', r))));
    const counters = clients.map((redis) => createRequestCounter({ redis, log }));
    const counts = await Promise.all(Array.from({ length: 20 }, (_, i) => counters[i % 2]!(999)));
    expect(counts.map(({ used }) => used).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    for (const redis of clients) redis.disconnect();
  });

  it('worker > logs a warning about a cluster node that may evict jobs', async () => {
    const other = cluster.masters.find((node) => node !== holder)!;
    await other.client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const warnings: object[] = [];
    const redis = redisClient('wait');
    warnOfEviction(redis, { warn: (fields: object) => warnings.push(fields) } as never);
    await expect.poll(() => warnings).toMatchObject([{ port: other.port, policy: 'allkeys-lru' }]);
    redis.disconnect();
    await other.client.config('SET', 'maxmemory-policy', 'noeviction');
  });

  it.each(FAULTS)(
    'acknowledged requests > are neither lost nor duplicated: $name',
    async (fault) => {
      expect((await runFault(scene, fault)).problems).toEqual([]);
    },
    240_000,
  );
});
