import { RateLimiterMemory, RateLimiterRedis } from 'rate-limiter-flexible';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, vi } from 'vitest';
import { createRequestCounter } from '#api/engine/http/authenticate';
import type { EngineContext } from '#api/engine/context';
import { openRedis, type RedisClient } from '#runtime/queue/redis';
import { admissionEnvelope } from '../../fixtures/agent.js';
import {
  executeBody,
  headersFor,
  startEngine,
  type Call,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../../fixtures/redis.js';
import { TENANT } from '../../fixtures/registry.js';
import { engineTest } from './setup.js';

const LIMIT = 8;
const clients: RedisClient[] = [];

const it = engineTest({ scopes: ['admit', 'read'] }).extend<{
  key: string;
  started: (overrides?: Partial<EngineContext>) => Promise<TestEngine>;
}>({
  key: ({ setup: { key } }, use) => use(key),
  /** Starts engines whose settings differ from those of `setup`. */
  started: async ({ setup: { registry } }, use) => {
    const engines: TestEngine[] = [];
    await use(async (overrides = {}) => {
      const engine = await startEngine(registry, { rateLimit: LIMIT, ...overrides });
      engines.push(engine);
      return engine;
    });
    for (const engine of engines) await engine.close();
    for (const client of clients.splice(0)) client.disconnect();
  },
});

function redisAt(url: string): RedisClient {
  const client = openRedis(url, { whenAway: 'fail_fast', onError: () => undefined });
  clients.push(client);
  return client;
}

const execute = (engine: TestEngine, apiKey: string, fields = executeBody()): Promise<Reply> =>
  engine.call({
    headers: headersFor(apiKey, String(fields['tenant_id'])),
    body: JSON.stringify(fields),
  });

/** Sends the requests concurrently, so that they fall into one window. */
function burst(engine: TestEngine, apiKey: string, times: number): Promise<Reply[]> {
  const call = { headers: headersFor(apiKey), body: 'not JSON' };
  return Promise.all(Array.from({ length: times }, () => engine.call(call)));
}

const statuses = (replies: Reply[], status: number): number =>
  replies.filter((reply) => reply.status === status).length;

const limiters = [RateLimiterMemory, RateLimiterRedis];

/** Makes windows so long that they do not end during a test, even when the machine stalls. */
function holdWindows(): void {
  for (const { prototype } of limiters) {
    const { penalty } = prototype;
    vi.spyOn(prototype, 'penalty').mockImplementation(async function (
      this: typeof prototype,
      key,
      points,
    ) {
      const counted = await penalty.call(this, key, points, { customDuration: 600 });
      return Object.assign(counted, { msBeforeNext: 1_000 });
    });
  }
}

async function endWindows(tenantNo: number): Promise<void> {
  for (const { prototype } of limiters)
    for (const limiter of vi.mocked(prototype.penalty).mock.contexts)
      await (limiter as typeof prototype).delete(String(tenantNo));
}

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

it('rate limit > rejects requests until the next second', async ({ key, started }) => {
  const engine = await started();
  // When the machine stalls, the requests of a burst can fall into two windows.
  await expect.poll(async () => statuses(await burst(engine, key, LIMIT * 3), 429)).not.toBe(0);
  await expect.poll(async () => (await execute(engine, key)).status).toBe(200);
});

describe('rate limit', () => {
  beforeEach(holdWindows);

  it('responds with 429 and Retry-After when exceeded, and admits in the next window', async ({
    key,
    setup,
    started,
  }) => {
    const engine = await started();
    const before = await setup.treeSize();
    const bodies = Array.from({ length: LIMIT + 4 }, () => executeBody());
    const replies = await Promise.all(bodies.map((body) => execute(engine, key, body)));
    const refused = replies.filter(({ status }) => status === 429);
    expect(statuses(replies, 200)).toBe(LIMIT);
    expect(refused).toHaveLength(4);
    for (const reply of refused) {
      expectProblem(reply, 429, 'rate_limited');
      expect(reply.headers['retry-after']).toBe('1');
      expect(reply.headers['ratelimit']).toBe('"tenant";r=0;t=1');
    }
    // A rejected request leaves no state: when it is sent again, the engine admits it as a new request.
    await endWindows(setup.registry.tenantNo);
    const again = await Promise.all(
      bodies.filter((_, i) => replies[i]?.status === 429).map((body) => execute(engine, key, body)),
    );
    expect(again.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(again.filter(({ headers }) => 'idempotent-replayed' in headers)).toEqual([]);
    expect(await setup.treeSize()).toBe(before + bodies.length);
  });

  it('is shared by the keys of a tenant, not between tenants', async ({ key, setup, started }) => {
    const engine = await started();
    const rival = await setup.tenant('rival');
    const second = await setup.keyFor();
    const replies = await Promise.all([burst(engine, key, LIMIT), burst(engine, second, LIMIT)]);
    expect(statuses(replies.flat(), 429)).toBe(LIMIT);
    const body = JSON.stringify(executeBody({ tenant_id: 'rival' }));
    expect((await engine.call({ headers: rival, body })).status).toBe(200);
  });

  it('follows a change of the tenant’s setting from the next request on', async ({
    key,
    setup,
    started,
  }) => {
    const engine = await started();
    await setup.db.sql`update svc.tenant set rate_limit = 3 where tenant_id = ${TENANT}`;
    try {
      const replies = await burst(engine, key, 5);
      expect(statuses(replies, 429)).toBe(2);
      expect(replies[0]!.headers['ratelimit-policy']).toBe('"tenant";q=3;w=1');
    } finally {
      await setup.db.sql`update svc.tenant set rate_limit = null where tenant_id = ${TENANT}`;
    }
  });

  it('counts requests to several routes, even rejected requests', async ({ key, started }) => {
    const engine = await started();
    const headers = headersFor(key);
    const bad: Call[] = [
      { headers, body: 'not JSON' },
      { headers: { ...headers, 'Content-Type': 'text/plain' }, body: 'x' },
      { headers: { ...headers, 'X-Svc-Tenant-Id': 'rival' }, body: '{}' },
      { path: '/v1/agent/admissions', headers, body: '{}' },
      { method: 'GET', path: '/v1/proofs/nothing', headers },
      { method: 'GET', path: '/v1/admissions/nothing', headers },
      { path: '/v1/batches', headers, body: '{}' },
      { path: '/v1/proofs/verify', headers, body: '{}' },
    ];
    const replies = [];
    for (const call of bad) replies.push(await engine.call(call));
    expect(replies.map(({ headers: { ratelimit } }) => ratelimit)).toEqual(
      bad.map((_, i) => `"tenant";r=${LIMIT - 1 - i};t=1`),
    );
    expect(statuses(replies, 429)).toBe(0);
    expectProblem(await execute(engine, key), 429, 'rate_limited');
  });

  it('does not count requests with an invalid key', async ({ key, started }) => {
    const engine = await started();
    const forged = key.slice(0, -7) + (key.at(-7) === 'A' ? 'B' : 'A') + key.slice(-6);
    const replies = await burst(engine, forged, LIMIT * 3);
    expect(statuses(replies, 401)).toBe(LIMIT * 3);
    expect(replies[0]!.headers['ratelimit']).toBeUndefined();
    expect((await execute(engine, key)).headers['ratelimit']).toBe(`"tenant";r=${LIMIT - 1};t=1`);
  });
});

describe.skipIf(skipsRedis)(`rate limit counted in Redis${withoutRedis}`, () => {
  let redis: TestRedis;
  beforeEach(holdWindows);
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.close());
  const ready = (client: RedisClient) => expect.poll(() => client.status).toBe('ready');

  it('is shared by all engines', async ({ key, started }) => {
    const [first, second] = [redisAt(redis.url), redisAt(redis.url)];
    await Promise.all([ready(first), ready(second)]);
    const pair = [await started({ redis: first }), await started({ redis: second })];
    const replies = await Promise.all(pair.map((engine) => burst(engine, key, LIMIT)));
    expect(statuses(replies.flat(), 429)).toBe(LIMIT);
    expect(statuses(replies.flat(), 400)).toBe(LIMIT);
  });

  it('falls back to a count in each engine during a Redis outage', async ({ key, started }) => {
    const client = redisAt(redis.url);
    await ready(client);
    const engine = await started({ redis: client });
    await redis.kill();
    const replies = await burst(engine, key, LIMIT * 2);
    expect(statuses(replies, 400)).toBe(LIMIT);
    expect(statuses(replies, 429)).toBe(LIMIT);
    expect(statuses(replies, 500) + statuses(replies, 503)).toBe(0);

    await redis.start();
    await ready(client);
    // The engine does not use Redis for a second after a failure.
    const countedInRedis = async () => {
      await burst(engine, key, 1);
      return client.keys('*rate*');
    };
    await expect.poll(countedInRedis, { timeout: 5_000 }).toHaveLength(1);
  });

  it('does not delay requests when Redis hangs', async () => {
    const client = redisAt('redis://127.0.0.1:1');
    const countRequest = createRequestCounter({
      // Simulates a connection that seems ready but gets no responses.
      redis: new Proxy(client, {
        get: (target, name) =>
          name === 'rlflxIncr'
            ? () => new Promise(() => undefined)
            : name === 'status'
              ? 'ready'
              : (Reflect.get(target, name, target) as unknown),
      }),
      log: { warn: () => undefined },
    });
    vi.useFakeTimers();
    const counted = Promise.all(Array.from({ length: 20 }, () => countRequest(1)));
    await vi.advanceTimersByTimeAsync(250);
    const places = await counted;
    expect(places.map(({ used }) => used)).toEqual(places.map((_, i) => i + 1));
    // After the timeout, the counter skips Redis for a while. A call to Redis would never end with this fake time.
    await countRequest(1);
  });
});

describe('full queue', () => {
  it('makes only admissions respond with 503, until the workers drain the queue', async ({
    key,
    setup,
    started,
  }) => {
    const engine = await started({ rateLimit: 1_000, maxQueuedAdmissions: 3, waitMs: 50 });
    engine.worker.isPaused = true;
    const body = executeBody();
    for (let i = 0; i < 3; i++) {
      expect((await execute(engine, key, i === 0 ? body : executeBody())).status).toBe(202);
    }
    const headers = headersFor(key);
    const agent = () =>
      engine.call({
        path: '/v1/agent/admissions',
        headers,
        body: JSON.stringify(admissionEnvelope()),
      });
    await expect.poll(async () => (await execute(engine, key)).status).toBe(503);
    const before = await setup.db.sql`select from svc.intake`;
    for (const reply of [
      await execute(engine, key),
      await agent(),
      await execute(engine, key, body),
    ]) {
      expectProblem(reply, 503, 'queue_too_deep');
      expect(reply.headers['retry-after']).toBe('2');
      // The last body was accepted before.
      expect(reply.json['detail']).toContain('an earlier attempt may have been');
    }
    expect(await setup.db.sql`select from svc.intake`).toHaveLength(before.length);
    const read = await engine.call({ method: 'GET', path: '/v1/proofs/nothing', headers });
    expect(read.status).toBe(404);

    engine.worker.isPaused = false;
    await engine.worker.work();
    await expect.poll(async () => (await agent()).status).toBe(200);
    expect((await execute(engine, key, body)).headers['idempotent-replayed']).toBe('true');
  });

  it('rejects nothing when counting its length fails', async ({ key, setup, started }) => {
    const engine = await started();
    await setup.db.sql.unsafe(
      'revoke execute on function svc.pending_depth(integer) from svc_engine',
    );
    try {
      expect((await execute(engine, key)).status).toBe(200);
    } finally {
      await setup.db.sql.unsafe(
        'grant execute on function svc.pending_depth(integer) to svc_engine',
      );
    }
  });
});
