import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectNothingLost } from '../fixtures/audit.js';
import { APPEND_LOCK, holdLock, untilLocked } from '../fixtures/hold-lock.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

interface Receipt {
  registry_proof_id: string;
}

let counter = 0;

/** Sends `count` executions at once; resolves with what each was answered. */
function sendMany(stack: RunningStack, count: number, action = 'BOOK_RESERVATION') {
  const intents = Array.from({ length: count }, () => `fault-${++counter}`);
  const answers = Promise.all(
    intents.map(async (intent_id) => {
      const response = await stack.execute({ intent_id, action });
      const body = (await response.json()) as Receipt & { code?: string; proof_id?: string };
      return { intent_id, status: response.status, body };
    }),
  );
  return answers;
}

type Answers = Awaited<ReturnType<typeof sendMany>>;

/** Acknowledged admissions, including those that were acknowledged when sent again. */
async function acknowledgedIn(stack: RunningStack, answers: Answers): Promise<Map<string, string>> {
  const ids = new Map<string, string>();
  for (const { intent_id, status, body } of answers) {
    if (status === 200) ids.set(intent_id, body.registry_proof_id);
  }
  for (const { intent_id } of answers) {
    const again = await eventually(
      async () => {
        const response = await stack
          .execute({ intent_id, action: 'BOOK_RESERVATION' })
          .catch(() => null);
        return response?.status === 200 ? ((await response.json()) as Receipt) : null;
      },
      40_000,
      `an answer for ${intent_id}`,
    );
    const first = ids.get(intent_id);
    if (first !== undefined) expect(again.registry_proof_id).toBe(first);
    ids.set(intent_id, again.registry_proof_id);
  }
  return ids;
}

/** A worker then waits with its proofs signed and nothing committed. */
const holdAppendLock = (stack: RunningStack) => holdLock(stack.superuser(), APPEND_LOCK);
const untilAWorkerWaits = (stack: RunningStack) => untilLocked(stack.superuser(), 'svc-worker %');

/**
 * With the queue in Postgres, which the table of faults (npm run test:faults) does not have: it goes
 * through the same and more with the queue in Redis.
 */
describe('with the queue in PostgreSQL', () => {
  let stack: RunningStack;
  beforeAll(async () => {
    stack = await startStack();
  });
  afterAll(() => stack.destroy());

  it('worker > loses and duplicates nothing when it is killed between sign and commit', async () => {
    const release = await holdAppendLock(stack);
    const answers = sendMany(stack, 60);
    await untilAWorkerWaits(stack);
    stack.kill('worker');
    await release();
    const ids = await acknowledgedIn(stack, await answers);
    expect(new Set(ids.values()).size).toBe(60);
    await expectNothingLost(stack, ids.values());
  }, 120_000);

  it('worker > loses and duplicates nothing when Postgres is killed between sign and commit', async () => {
    const before = await sendMany(stack, 20);
    expect(before.map((one) => one.status)).toEqual(before.map(() => 200));
    await holdAppendLock(stack);
    const answers = sendMany(stack, 40);
    await untilAWorkerWaits(stack);
    stack.kill('postgres'); // and with it the connection that holds the lock
    const inFlight = await answers;
    for (const { status } of inFlight) expect([200, 202, 503]).toContain(status);
    const ids = await acknowledgedIn(stack, inFlight);
    const earlier = before.map((one) => one.body.registry_proof_id);
    await expectNothingLost(stack, [...earlier, ...ids.values()]);
  }, 120_000);

  it('all processes > survive repeated connection loss without losing or duplicating anything', async () => {
    const programs = ['engine', 'worker', 'verifier', 'publisher', 'facade'] as const;
    const pids = () => programs.map((program) => stack.pid(program));
    const before = pids();
    const inFlight: Answers = [];
    for (let time = 0; time < 3; time += 1) {
      const release = await holdAppendLock(stack);
      const answers = sendMany(stack, 8);
      await untilAWorkerWaits(stack);
      await stack.superuser()`
        select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'svc-%'`;
      await release();
      inFlight.push(...(await answers));
    }
    const ids = await acknowledgedIn(stack, inFlight);
    expect(new Set(ids.values()).size).toBe(3 * 8);
    await expectNothingLost(stack, ids.values());
    expect(pids()).toEqual(before);
  }, 120_000);

  it('group > answers an item that fails it, and its neighbours', async () => {
    const sql = stack.superuser();
    await sql.unsafe(`
      create or replace function public.poison() returns trigger language plpgsql as $$ begin
        if new.action = 'POISON' then raise exception 'poison'; end if;
        return new; end $$;
      create trigger poison before insert on svc.proof
        for each row execute function public.poison()`);
    const [good, bad] = await Promise.all([sendMany(stack, 30), sendMany(stack, 1, 'POISON')]);
    await sql.unsafe('drop trigger poison on svc.proof');
    expect(good.map((one) => one.status)).toEqual(good.map(() => 200));
    expect(bad[0]?.status).toBeGreaterThanOrEqual(500);
    expect(bad[0]?.body.code).toBeDefined();
    await expectNothingLost(
      stack,
      good.map((one) => one.body.registry_proof_id),
    );
  }, 60_000);
});
