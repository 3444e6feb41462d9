import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectNothingLost } from '../fixtures/audit.js';
import { APPEND_LOCK, holdLock, untilLocked } from '../fixtures/hold-lock.js';
import { startStack, type RunningStack } from '../fixtures/stack.js';
import { sampleOf, StackClient, type Answer } from './stack-client.js';

/**
 * With the queue in PostgreSQL, which the fault table (npm run test:faults) does not have: its scenarios
 * run with the queue in Redis and with small batches.
 */
let stack: RunningStack;
let client: StackClient;
beforeAll(async () => {
  stack = await startStack();
  client = new StackClient(stack);
});
afterAll(() => stack.destroy());

/** A worker then waits with its proofs signed and nothing committed. */
const holdAppendLock = () => holdLock(stack.superuser(), APPEND_LOCK);
const untilWorkerWaits = () => untilLocked(stack.superuser(), 'svc-worker %');

describe('admissions', () => {
  it('are neither lost nor duplicated when the worker is killed between sign and commit', async () => {
    const release = await holdAppendLock();
    const answers = client.executeMany(60);
    await untilWorkerWaits();
    stack.kill('worker');
    await release();
    await expectNothingLost(stack, await client.proofIdsOf(await answers));
  }, 120_000);

  it('are neither lost nor duplicated when Postgres is killed between sign and commit', async () => {
    const before = await client.executeMany(20);
    expect(before.map(({ status }) => status)).toEqual(before.map(() => 200));
    await holdAppendLock();
    const answers = client.executeMany(40);
    await untilWorkerWaits();
    stack.kill('postgres'); // and with it the connection that holds the lock
    await expectNothingLost(stack, await client.proofIdsOf([...before, ...(await answers)]));
  }, 120_000);

  it('are neither lost nor duplicated when every connection is lost repeatedly, and no process ends', async () => {
    const programs = ['engine', 'worker', 'verifier', 'publisher', 'facade'] as const;
    const pids = () => programs.map((program) => stack.pid(program));
    const before = pids();
    const answers: Answer[] = [];
    for (let time = 0; time < 3; time += 1) {
      const release = await holdAppendLock();
      const sent = client.executeMany(8);
      await untilWorkerWaits();
      await stack.superuser()`
        select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'svc-%'`;
      await release();
      answers.push(...(await sent));
    }
    await expectNothingLost(stack, await client.proofIdsOf(answers));
    expect(pids()).toEqual(before);
  }, 120_000);
});

describe('a batch', () => {
  it('of the largest size is admitted and published when its worker is killed twice', async () => {
    const release = await holdAppendLock();
    const body = client.newBatch(10_000);
    const { id } = await client.acceptBatch(body);
    await untilWorkerWaits();
    stack.kill('worker'); // with a chunk signed and nothing of it committed
    await release();
    await client.untilAdmitted(1_000);
    stack.kill('worker'); // between chunks
    const ids = await client.batchProofIds(id);
    expect((await client.acceptBatch(body)).id).toBe(id);
    await expectNothingLost(stack, sampleOf(ids));
  }, 240_000);

  it('is not accepted when the engine is killed before the commit', async () => {
    const sql = stack.superuser();
    const counts = async (): Promise<unknown> => {
      const [row] = await sql`
        select (select count(*) from svc.batch)::int as batches, (select count(*) from svc.intake)::int as intake`;
      return row;
    };
    const before = await counts();
    // The last write of the acceptance waits for the lock.
    const release = await holdLock(sql, 'lock table svc.batch_turn in exclusive mode');
    const body = client.newBatch(600);
    const sent = client.sendBatch(body);
    await untilLocked(sql, 'svc-engine');
    stack.kill('engine');
    expect(await sent).toBeNull();
    await release();
    const waiting = () => sql`
      select from pg_stat_activity
      where application_name = 'svc-engine' and wait_event_type = 'Lock'`;
    await expect.poll(waiting).toHaveLength(0);
    expect(await counts()).toEqual(before);
    const { id, isReplayed } = await client.acceptBatch(body);
    expect(isReplayed).toBe(false);
    await expectNothingLost(stack, sampleOf(await client.batchProofIds(id)));
  }, 120_000);

  it('is accepted once when the engine is killed after the commit', async () => {
    const sql = stack.superuser();
    // Nothing is admitted before the engine is dead.
    const release = await holdAppendLock();
    const batches = async (): Promise<number> => {
      const [row] = await sql<{ n: number }[]>`select count(*)::int as n from svc.batch`;
      return row?.n ?? 0;
    };
    const before = await batches();
    const body = client.newBatch(600);
    const sent = client.sendBatch(body);
    await expect.poll(batches).toBe(before + 1);
    stack.kill('engine');
    await sent;
    await release();
    const { id, isReplayed } = await client.acceptBatch(body);
    expect(isReplayed).toBe(true);
    await expectNothingLost(stack, sampleOf(await client.batchProofIds(id)));
  }, 120_000);
});
