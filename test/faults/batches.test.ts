import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Batch, BatchResult } from '#protocol/schemas/batch';
import { expectNothingLost } from '../fixtures/audit.js';
import { APPEND_LOCK, holdLock, untilLocked } from '../fixtures/hold-lock.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

let counter = 0;

const bodyOf = (stack: RunningStack, count: number): string =>
  JSON.stringify(
    Array.from({ length: count }, () => ({
      schema_version: 'svc.runtime.intent_execute.request/1.0',
      tenant_id: stack.tenantId,
      intent_id: `batch-fault-${++counter}`,
      action: 'BOOK_RESERVATION',
    })),
  );

const headersOf = (stack: RunningStack): Record<string, string> => ({
  'content-type': 'application/json',
  'x-svc-api-key': stack.apiKey,
  'x-svc-tenant-id': stack.tenantId,
});

/** Sends until it is accepted; an engine that was killed comes back. */
function accept(stack: RunningStack, body: string): Promise<{ batch: Batch; replayed: boolean }> {
  return eventually(
    async () => {
      const response = await fetch(`${stack.engineUrl}/v1/batches`, {
        method: 'POST',
        headers: headersOf(stack),
        body,
      }).catch(() => null);
      if (response?.status !== 202) return null;
      const replayed = response.headers.get('idempotent-replayed') === 'true';
      return { batch: (await response.json()) as Batch, replayed };
    },
    40_000,
    'the acceptance of a batch',
  );
}

/** Waits for the end of a batch, and has the proof ids of its items, all of them admitted. */
async function admittedIds(stack: RunningStack, batchId: string): Promise<string[]> {
  const url = `${stack.engineUrl}/v1/batches/${batchId}`;
  const done = await eventually(
    async () => {
      const response = await fetch(url, { headers: headersOf(stack) }).catch(() => null);
      const batch = response?.status === 200 ? ((await response.json()) as Batch) : null;
      return batch?.state === 'completed' ? batch : null;
    },
    90_000,
    'the end of a batch',
  );
  expect(done.counts.admitted).toBe(done.counts.total);
  const lines = await fetch(`${url}/results`, {
    headers: { ...headersOf(stack), accept: 'application/x-ndjson' },
  });
  const results = (await lines.text())
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as BatchResult);
  expect(results.map(({ index }) => index)).toEqual(results.map((_, index) => index));
  expect(results.map(({ state }) => state)).toEqual(results.map(() => 'admitted'));
  return results.map(({ proof_id: id }) => id ?? '');
}

/** Some of them: the audit looks at all of the log by itself. */
const some = (ids: string[]): string[] =>
  ids.filter((_, at) => at % Math.ceil(ids.length / 20) === 0);

/** Until more than so many items of the last batch are admitted. */
async function untilAdmitted(stack: RunningStack, count: number): Promise<void> {
  const sql = stack.superuser();
  await eventually(
    async () => {
      const [row] = await sql<{ n: number }[]>`
        select sum(admitted)::int as n from svc.batch_progress`;
      return (row?.n ?? 0) > count ? true : null;
    },
    60_000,
    'a part of the batch',
  );
}

/** With the queue in Postgres, which the table of faults (npm run test:faults) does not have. */
describe('with the queue in PostgreSQL', () => {
  let stack: RunningStack;
  beforeAll(async () => {
    stack = await startStack();
  });
  afterAll(() => stack.destroy());

  it('batch > is admitted and published at its largest size when its worker is killed', async () => {
    const release = await holdLock(stack.superuser(), APPEND_LOCK);
    const body = bodyOf(stack, 10_000);
    const { batch } = await accept(stack, body);
    await untilLocked(stack.superuser(), 'svc-worker %');
    stack.kill('worker'); // with a part signed and nothing of it committed
    await release();
    await untilAdmitted(stack, 1_000);
    stack.kill('worker'); // and in the middle of it
    const ids = await admittedIds(stack, batch.batch_id);
    expect(new Set(ids).size).toBe(10_000);
    expect((await accept(stack, body)).batch.batch_id).toBe(batch.batch_id);
    await expectNothingLost(stack, some(ids));
  }, 240_000);

  it('batch > is not accepted when the engine is killed before the commit', async () => {
    const sql = stack.superuser();
    const counts = async (): Promise<unknown> => {
      const [row] = await sql`
        select (select count(*) from svc.batch)::int as batches, (select count(*) from svc.intake)::int as intake`;
      return row;
    };
    const before = await counts();
    // The last write waits for the lock.
    const release = await holdLock(
      stack.superuser(),
      'lock table svc.batch_turn in exclusive mode',
    );
    const body = bodyOf(stack, 600);
    const sent = fetch(`${stack.engineUrl}/v1/batches`, {
      method: 'POST',
      headers: headersOf(stack),
      body,
    }).catch(() => null);
    await untilLocked(stack.superuser(), 'svc-engine');
    stack.kill('engine');
    expect(await sent).toBeNull();
    await release();
    await expect
      .poll(
        async () =>
          (
            await sql`
      select from pg_stat_activity where application_name = 'svc-engine'
        and wait_event_type = 'Lock'`
          ).length,
      )
      .toBe(0);
    expect(await counts()).toEqual(before);
    const { batch, replayed } = await accept(stack, body);
    expect(replayed).toBe(false);
    await expectNothingLost(stack, some(await admittedIds(stack, batch.batch_id)));
  }, 120_000);

  it('batch > is accepted once when the engine is killed after the commit', async () => {
    const sql = stack.superuser();
    // Nothing may go on before the engine is dead.
    const release = await holdLock(stack.superuser(), APPEND_LOCK);
    const body = bodyOf(stack, 600);
    const [last] = await sql<{ n: number }[]>`select count(*)::int as n from svc.batch`;
    const sent = fetch(`${stack.engineUrl}/v1/batches`, {
      method: 'POST',
      headers: headersOf(stack),
      body,
    }).catch(() => null);
    await eventually(
      async () => {
        const [row] = await sql<{ n: number }[]>`select count(*)::int as n from svc.batch`;
        return (row?.n ?? 0) > (last?.n ?? 0) ? true : null;
      },
      15_000,
      'the commit of the batch',
    );
    stack.kill('engine');
    await sent;
    await release();
    const { batch, replayed } = await accept(stack, body);
    expect(replayed).toBe(true);
    await expectNothingLost(stack, some(await admittedIds(stack, batch.batch_id)));
  }, 120_000);
});

/** The table of faults goes through small batches; these are parts of many jobs. */
describe.skipIf(skipsRedis)(`with the queue in Redis${withoutRedis}`, () => {
  let stack: RunningStack;
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await startRedis();
    stack = await startStack({ REDIS_URL: redis.url });
  });
  afterAll(async () => {
    await stack.destroy();
    await redis.close();
  });

  it('batch > is admitted when its worker is killed and the queue loses the rest', async () => {
    const client = new Redis(redis.url);
    const release = await holdLock(stack.superuser(), APPEND_LOCK);
    const { batch } = await accept(stack, bodyOf(stack, 4_000));
    await untilLocked(stack.superuser(), 'svc-worker %');
    await client.flushall();
    stack.kill('worker');
    await release();
    await untilAdmitted(stack, 500);
    await client.flushall();
    await client.quit();
    const ids = await admittedIds(stack, batch.batch_id);
    expect(new Set(ids).size).toBe(4_000);
    await expectNothingLost(stack, some(ids));
  }, 120_000);
});
