import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake } from '#sql/admissions/intake';
import { loadPending } from '#sql/admissions/pending';
import { append, prepare } from '#workers/admit/append';
import { processAdmissions } from '#workers/admit/process';
import { admissionEnvelope, agentItem, newRunId, outcomeEnvelope } from '../fixtures/agent.js';
import { withoutTriggers } from '../fixtures/database.js';
import { eraseProof } from '../fixtures/erase.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

const ONE = 10_000;
const db = useDatabase('file');
let registry: TestRegistry;
beforeAll(async () => {
  const files = await readPolicyFolder(join(packageRoot, 'examples', 'policies', 'daily-limit'));
  const policies = Object.entries(files.policies).filter(([id]) => id !== 'bound-agents-only');
  const policy = { ...files, policies: Object.fromEntries(policies) };
  registry = await openRegistry(db, { policy });
});

const refundItem = (agent: string, amount: string, fields: Record<string, unknown> = {}) =>
  agentItem(
    registry,
    admissionEnvelope({
      action: 'ISSUE_REFUND',
      agent: { id: agent },
      facts: { amount: { decimal: amount }, currency: 'EUR' },
      ...fields,
    }),
  );

interface Row {
  id: string;
  effect: string;
  reasons: string[];
  day: string;
  before: number;
  after: number;
}

/** The proofs of these admissions in log order, with the values of the counter. */
const proofsOf = (ids: string[]) => db.sql<Row[]>`
  select proof_id as id, effect, reasons, budgets #>> '{daily_refunds,window,day}' as day,
    (budgets #>> '{daily_refunds,before}')::bigint as before,
    (budgets #>> '{daily_refunds,after}')::bigint as after
  from svc.log_entry where proof_id = any(${ids}::uuid[]) order by leaf_index`;

const counters = async (): Promise<number[]> =>
  (await db.sql<{ value: number }[]>`select value from svc.counter order by leaf_index`).map(
    ({ value }) => value,
  );

async function accept(items: ReturnType<typeof refundItem>[]): Promise<string[]> {
  await acceptIntake(registry.engine, items);
  return items.map(({ proofId }) => proofId);
}

/**
 * Expects that each proof begins with the value after the last admitted proof, and that no value
 * exceeds the limit.
 */
function expectChain(rows: Row[]): number {
  let value = 0;
  for (const { effect, before, after } of rows) {
    expect(before).toBe(value);
    expect(effect).toBe(after <= 2_000 * ONE ? 'ADMIT' : 'DENY');
    if (effect === 'ADMIT') value = after;
  }
  return value;
}

describe('counter', () => {
  it('is never overspent by 200 admissions of two workers at once', async () => {
    const items = Array.from({ length: 200 }, (_, i) => refundItem('hot', `${7 + (i % 13)}.0001`));
    const ids = await accept(items);
    const worker = { ...registry.admit, sql: db.as('svc_worker') };
    const groups = Array.from({ length: 20 }, (_, i) => ids.filter((_, at) => at % 20 === i));
    await Promise.all(
      groups.map((group, i) => processAdmissions(i % 2 === 0 ? registry.admit : worker, group)),
    );
    const rows = await proofsOf(ids);
    expect(rows).toHaveLength(200);
    expect(new Set(rows.map(({ effect }) => effect))).toEqual(new Set(['ADMIT', 'DENY']));
    expect((await counters()).at(-1)).toBe(expectChain(rows));
  });

  it('causes a second evaluation of an admission that was signed with an outdated value', async () => {
    const ids = await accept([refundItem('late', '1500.00'), refundItem('late', '600.00')]);
    const pending = await loadPending(registry.admit.sql, ids);
    // Both decisions are ADMIT, because each is signed with the counter value 0.
    const [first, second] = await Promise.all(
      pending.map((intake) => prepare(registry.admit, intake, new Map())),
    );
    expect([first!.effect, second!.effect]).toEqual(['ADMIT', 'ADMIT']);
    await append(registry.admit, [second!]);
    await append(registry.admit, [first!]);
    const rows = await proofsOf(ids);
    expectChain(rows);
    expect(rows[1]).toMatchObject({ effect: 'DENY', reasons: ['at-most-2000-a-day'] });
    await registry.verifyAll();
    const [{ failed }] = await db.sql<[{ failed: number }]>`
      select count(*)::int as failed from svc.verdict where outcome = 'fail'`;
    expect(failed).toBe(0);
  });

  it('is separate for each agent and each UTC day of acceptance', async () => {
    const ids = await accept([
      refundItem('day', '2000.00'),
      refundItem('day', '2000.00'),
      refundItem('day-2', '2000.00'),
    ]);
    await withoutTriggers(db, async (tx) => {
      await tx`update svc.policy_activation set active_from = '2026-01-01'`;
      for (const [id, at] of [
        [ids[0]!, '2026-02-28T23:59:59.999Z'],
        [ids[1]!, '2026-03-01T00:00:00.000Z'],
        [ids[2]!, '2026-03-01T00:00:00.000Z'],
      ] as const) {
        await tx`update svc.intake set accepted_at = ${at} where proof_id = ${id}::uuid`;
        await tx`update svc.intake_pending set accepted_at = ${at} where proof_id = ${id}::uuid`;
      }
    });
    await processAdmissions(registry.admit, ids);
    const rows = await proofsOf(ids);
    expect(new Map(rows.map(({ id, day, effect, before }) => [id, [day, effect, before]]))).toEqual(
      new Map([
        [ids[0], ['2026-02-28', 'ADMIT', 0]],
        [ids[1], ['2026-03-01', 'ADMIT', 0]],
        [ids[2], ['2026-03-01', 'ADMIT', 0]],
      ]),
    );
  });

  it('is separate for tenants that use the same agent id', async () => {
    const tenantNo = await registry.addTenant('rival');
    const [own = '', theirs = ''] = await accept([
      refundItem('shared', '2000.00'),
      { ...refundItem('shared', '1500.00', { tenant_id: 'rival' }), tenantNo },
    ]);
    await processAdmissions(registry.admit, [own, theirs]);
    const [next = ''] = await accept([
      { ...refundItem('shared', '500.00', { tenant_id: 'rival' }), tenantNo },
    ]);
    await processAdmissions(registry.admit, [next]);
    const rows = await proofsOf([own, theirs, next]);
    expect(new Map(rows.map(({ id, effect, before }) => [id, [effect, before]]))).toEqual(
      new Map([
        [own, ['ADMIT', 0]],
        [theirs, ['ADMIT', 0]],
        [next, ['ADMIT', 1_500 * ONE]],
      ]),
    );
  });

  it('keeps its value after an erasure and a failed outcome', async () => {
    const [id = ''] = await accept([refundItem('kept', '1500.00')]);
    await processAdmissions(registry.admit, [id]);
    const outcome = agentItem(registry, outcomeEnvelope(id, { result: 'failed' }));
    await acceptIntake(registry.engine, [outcome]);
    await processAdmissions(registry.admit, [outcome.proofId]);
    await eraseProof(db, id);
    const next = await accept([refundItem('kept', '500.0001'), refundItem('kept', '500.00')]);
    await processAdmissions(registry.admit, next);
    const rows = await proofsOf([id, ...next]);
    expect(rows[0]).toMatchObject({ id, before: null });
    expect(rows.slice(1).map(({ before }) => before)).toEqual(
      expect.arrayContaining([1_500 * ONE]) as number[],
    );
    expect((await counters()).at(-1)).toBe(2_000 * ONE);
  });
});

async function outcomeOf(item: ReturnType<typeof refundItem>) {
  const [id = ''] = await accept([item]);
  await processAdmissions(registry.admit, [id]);
  const outcome = (await registry.readOutcomes([id])).get(id);
  return outcome?.state === 'refused' ? outcome.code : outcome?.state;
}

const adopt = (at: Date) => db.sql`
  insert into svc.adoption (from_index, to_index, at)
  select 1000 + count(*), 1001 + count(*), ${at} from svc.adoption`;

const retireLog = (at: Date) => db.sql`
  insert into svc.ended_log (origin, tree_size, reason, ended_at)
  select 'log ' || count(*), 1, 'lost', ${at} from svc.ended_log`;

it.each([
  ['an adoption', adopt, 'adoption'],
  ['the retirement of a log', retireLog, 'ended_log'],
] as const)(
  'worker > rejects requests that need runs or counters from before %s, and decides all others',
  async (_, lose, table) => {
    const refund = () => refundItem('lost', '1.00');
    const inRun = () => agentItem(registry, admissionEnvelope({ run: { id: newRunId(), seq: 0 } }));
    await lose(new Date(Date.now() - 24 * 3600_000));
    expect(await outcomeOf(refund())).toBe('proved');
    expect(await outcomeOf(inRun())).toBe('proved');
    await lose(new Date());
    expect(await outcomeOf(refund())).toBe('counter_lost');
    expect(await outcomeOf(inRun())).toBe('run_closed');
    expect(await outcomeOf(agentItem(registry, admissionEnvelope()))).toBe('proved');
    await withoutTriggers(db, `delete from svc.${table}`);
  },
);
