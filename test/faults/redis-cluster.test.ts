import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRequestCounter } from '#api/engine/http/rate-limit';
import { openRedis, warnOfEviction, type RedisClient } from '#runtime/queue/redis';
import { expectNothingLost } from '../fixtures/audit.js';
import { APPEND_LOCK, holdLock, untilLocked } from '../fixtures/hold-lock.js';
import { RedisCluster, skipsRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { startStack, type RunningStack } from '../fixtures/stack.js';
import { sampleOf, StackClient } from './stack-client.js';

const ITEMS = 1_200;
let cluster: RedisCluster;
let stack: RunningStack;
let tenant: StackClient;
/** The master with the queue. */
let holder: TestRedis;

const redisClient = (whenAway: 'fail_fast' | 'wait'): RedisClient =>
  openRedis(cluster.url, { whenAway, onError: () => undefined });

const acceptBatch = async (items = ITEMS): Promise<string> =>
  (await tenant.acceptBatch(tenant.newBatch(items))).id;

beforeAll(async () => {
  if (skipsRedis) return;
  cluster = await RedisCluster.start();
  holder = await cluster.ownerOf('{svc}');
  stack = await startStack({ REDIS_URL: cluster.url });
  tenant = new StackClient(stack);
}, 90_000);
afterAll(async () => {
  if (skipsRedis) return;
  await stack.destroy();
  await cluster.close();
});

describe.skipIf(skipsRedis)(`with a Redis Cluster${withoutRedis}`, () => {
  it('queue > commits executions and batches with every key in one slot', async () => {
    const batch = await acceptBatch();
    const sent = await tenant.executeMany(40);
    expect(sent.map(({ status }) => status)).toEqual(sent.map(() => 200));
    await tenant.batchProofIds(batch);
    for (const master of cluster.masters) {
      expect((await master.client.keys('*')).length > 0).toBe(master === holder);
    }
    // The queue in the database exists and is unused.
    const [jobs] = await stack.superuser()<{ n: number }[]>`
      select count(*)::int as n from bullmq.job`;
    expect(jobs?.n).toBe(0);
  });

  it('rate limit > is shared by engines', async () => {
    const log = { warn: (...said: unknown[]) => expect(said).toEqual([]) };
    const clients = [redisClient('fail_fast'), redisClient('fail_fast')];
    await Promise.all(clients.map((redis) => new Promise((r) => void redis.once('ready', r))));
    const counters = clients.map((redis) => createRequestCounter({ redis, log }));
    const counts = await Promise.all(
      Array.from({ length: 20 }, (_, i) => counters[i % 2]!.count(999)),
    );
    expect(counts.map(({ used }) => used).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    for (const redis of clients) redis.disconnect();
  });

  it('worker > warns of a node that may evict jobs', async () => {
    const other = cluster.masters.find((node) => node !== holder)!;
    await other.client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const warnings: object[] = [];
    const redis = redisClient('wait');
    warnOfEviction(redis, { warn: (fields: object) => warnings.push(fields) } as never);
    await expect.poll(() => warnings).toMatchObject([{ port: other.port, policy: 'allkeys-lru' }]);
    redis.disconnect();
    await other.client.config('SET', 'maxmemory-policy', 'noeviction');
  });

  it('batch > is admitted when its worker is killed and the queue loses its other jobs', async () => {
    const sql = stack.superuser();
    const release = await holdLock(sql, APPEND_LOCK);
    const batch = await acceptBatch(4_000);
    await untilLocked(sql, 'svc-worker %');
    await holder.client.flushall();
    stack.kill('worker');
    await release();
    await tenant.untilAdmitted(ITEMS + 500);
    await holder.client.flushall();
    await expectNothingLost(stack, sampleOf(await tenant.batchProofIds(batch)));
  }, 120_000);

  it('queue > loses and duplicates nothing when its node restarts', async () => {
    const batch = await acceptBatch();
    const inFlight = tenant.executeMany(30);
    await holder.kill();
    const without = tenant.executeMany(10);
    await sleep(500);
    await holder.start();
    await cluster.untilServed();
    await tenant.batchProofIds(batch);
    const sent = [...(await inFlight), ...(await without)];
    await expectNothingLost(stack, await tenant.proofIdsOf(sent));
    await tenant.receiptOf();
  }, 60_000);

  it('queue > loses and duplicates nothing when a replica takes over from its node', async () => {
    await cluster.addReplicaOf(holder);
    const batch = await acceptBatch();
    const inFlight = tenant.executeMany(30);
    await holder.kill();
    await cluster.untilServed();
    await tenant.batchProofIds(batch);
    await expectNothingLost(stack, await tenant.proofIdsOf(await inFlight));
    await tenant.receiptOf();
  }, 60_000);
});
