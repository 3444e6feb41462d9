import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRequestCounter } from '#api/engine/http/rate-limit';
import type { Batch } from '#protocol/schemas/batch';
import { openRedis, warnOfEviction, type RedisClient } from '#runtime/queue/redis';
import { expectNothingLost } from '../fixtures/audit.js';
import { RedisCluster, type RedisNode } from '../fixtures/redis-cluster.js';
import { skipsRedis, withoutRedis } from '../fixtures/redis.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

/** The programs over a Redis Cluster of three masters, of which they lose the one with the queue. */

const ITEMS = 1_200;
let cluster: RedisCluster;
let stack: RunningStack;
let holder: RedisNode;
let counter = 0;

const client = (whenAway: 'fail_fast' | 'wait'): RedisClient =>
  openRedis(cluster.url, { whenAway, onError: () => undefined });

interface Sent {
  intent: string;
  status: number;
  id: string | undefined;
}

async function send(intent: string): Promise<Sent> {
  const response = await stack.execute({ intent_id: intent, action: 'BOOK_RESERVATION' });
  const body = (await response.json()) as { registry_proof_id?: string; proof_id?: string };
  return { intent, status: response.status, id: body.registry_proof_id ?? body.proof_id };
}

const sendMany = (count: number): Promise<Sent[]> =>
  Promise.all(Array.from({ length: count }, () => send(`cluster-${++counter}`)));

async function sendBatch(): Promise<string> {
  const lines = Array.from({ length: ITEMS }, () =>
    JSON.stringify({
      schema_version: 'svc.runtime.intent_execute.request/1.0',
      intent_id: `cluster-batch-${++counter}`,
      tenant_id: stack.tenantId,
      action: 'BOOK_RESERVATION',
    }),
  );
  const response = await fetch(`${stack.engineUrl}/v1/batches`, {
    method: 'POST',
    headers: { ...keys(), 'content-type': 'application/x-ndjson' },
    body: lines.join('\n'),
  });
  expect(response.status).toBe(202);
  return ((await response.json()) as Batch).batch_id;
}

const keys = () => ({
  'x-svc-api-key': stack.apiKey,
  'x-svc-tenant-id': stack.tenantId,
  'svc-api-version': 'v1',
});

const untilAdmitted = (batchId: string): Promise<unknown> =>
  eventually(
    async () => {
      const url = `${stack.engineUrl}/v1/batches/${batchId}`;
      const batch = (await (await fetch(url, { headers: keys() })).json()) as Batch;
      return batch.state === 'completed'
        ? (expect(batch.counts.admitted).toBe(ITEMS) ?? true)
        : null;
    },
    40_000,
    'the end of a batch',
  );

/** Everything that was answered 200 or 202 is public; what was refused may be sent again. */
async function expectAllThere(sent: Sent[]): Promise<void> {
  for (const { status } of sent) expect([200, 202, 503]).toContain(status);
  await expectNothingLost(
    stack,
    sent.flatMap(({ status, id }) => (status === 503 || id === undefined ? [] : [id])),
  );
}

beforeAll(async () => {
  if (skipsRedis) return;
  cluster = await RedisCluster.start();
  holder = await cluster.ownerOf('{svc}');
  stack = await startStack({ REDIS_URL: cluster.url });
}, 90_000);
afterAll(async () => {
  if (skipsRedis) return;
  await stack.destroy();
  await cluster.close();
});

describe.skipIf(skipsRedis)(`with a Redis Cluster${withoutRedis}`, () => {
  it('queue > commits executions and batches with every key in one slot', async () => {
    const batch = await sendBatch();
    const sent = await sendMany(40);
    expect(sent.map(({ status }) => status)).toEqual(sent.map(() => 200));
    await untilAdmitted(batch);
    const names = await Promise.all(
      cluster.masters.map((node) => node.ask((redis) => redis.keys('*'))),
    );
    const elsewhere = cluster.masters.flatMap((node, i) => (node === holder ? [] : names[i]!));
    expect(elsewhere).toEqual([]);
    expect(names.flat().length).toBeGreaterThan(0);
    // Nothing of it went to the queue in the database, which is there as well.
    const [jobs] = await stack.superuser()<{ n: number }[]>`
      select count(*)::int as n from bullmq.job`;
    expect(jobs?.n).toBe(0);
  });

  it('rate limit > is shared by engines', async () => {
    const log = { warn: (...said: unknown[]) => expect(said).toEqual([]) };
    const clients = [client('fail_fast'), client('fail_fast')];
    await Promise.all(clients.map((redis) => new Promise((r) => void redis.once('ready', r))));
    const counters = clients.map((redis) => createRequestCounter({ redis, log }));
    const places = await Promise.all(
      Array.from({ length: 20 }, (_, i) => counters[i % 2]!.count(999)),
    );
    expect(places.map(({ used }) => used).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    for (const redis of clients) redis.disconnect();
  });

  it('worker > warns of a node that may evict jobs', async () => {
    const other = cluster.masters.find((node) => node !== holder)!;
    await other.ask((redis) => redis.config('SET', 'maxmemory-policy', 'allkeys-lru'));
    const said: object[] = [];
    const redis = client('wait');
    warnOfEviction(redis, { warn: (about: object) => said.push(about) } as never);
    await expect.poll(() => said).toMatchObject([{ port: other.port, policy: 'allkeys-lru' }]);
    redis.disconnect();
    await other.ask((node) => node.config('SET', 'maxmemory-policy', 'noeviction'));
  });

  it('queue > loses and duplicates nothing when its node restarts', async () => {
    const batch = await sendBatch();
    const inFlight = sendMany(30);
    await holder.kill();
    const without = sendMany(10);
    await sleep(500);
    await holder.start();
    await cluster.untilWhole();
    await untilAdmitted(batch);
    await expectAllThere([...(await inFlight), ...(await without)]);
    await eventually(
      async () => ((await send(`cluster-${++counter}`)).status === 200 ? true : null),
      20_000,
      'an execution that is answered at once again',
    );
  }, 60_000);

  it('queue > loses and duplicates nothing when a replica takes over its node', async () => {
    await cluster.addReplicaOf(holder);
    const batch = await sendBatch();
    const inFlight = sendMany(30);
    await holder.kill();
    const left = [...cluster.masters.filter((node) => node !== holder), cluster.replica!];
    await cluster.untilWhole(left);
    await untilAdmitted(batch);
    await expectAllThere(await inFlight);
    await eventually(
      async () => ((await send(`cluster-${++counter}`)).status === 200 ? true : null),
      20_000,
      'an execution that is answered at once again',
    );
  }, 60_000);
});
