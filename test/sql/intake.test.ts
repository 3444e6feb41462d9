import { randomBytes, randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { asTenants, type Pool } from '#sql/db/transaction';
import { acceptIntake, type IntakeItem, pinPolicy, storeAdmissions } from '#sql/admissions/intake';
import { readPinnedIntake } from '#sql/proofs/rebuild-aep';
import { pendingDepth } from '#sql/admissions/pending';
import { processAdmissions } from '#workers/admit/process';
import { beforeRow } from '../fixtures/database.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
let otherTenantNo: number;

beforeAll(async () => {
  otherTenantNo = await registry.addTenant('other');
});

const accept = (...items: IntakeItem[]) => acceptIntake(registry.engine, items);
const fresh = (item: IntakeItem): IntakeItem => ({ ...item, proofId: registry.item().proofId });
const refuse = (item: IntakeItem) =>
  processAdmissions({ ...registry.admit, admissionsPaused: true }, [item.proofId]);

it.each(['intake', 'idempotency_key'])(
  'acceptIntake of concurrent groups with equal items > does not deadlock in any order (%s)',
  async (table) => {
    // Every insert is slow, so each group has inserted its first row before any group inserts its
    // second.
    const remove = await beforeRow(db, `insert on svc.${table}`, 'perform pg_sleep(0.1);');
    const items = ['a', 'b', 'c'].map((key) => ({
      ...registry.item(),
      idempotencyKey: table === 'intake' ? null : `circle-${key}`,
    }));
    const groups = await Promise.all([
      accept(...items),
      accept(...items.map(fresh).reverse()),
      accept(...items.map(fresh)),
    ]).finally(remove);
    const outcomes = groups.flat().map((one) => one.outcome);
    expect(outcomes.filter((one) => one === 'accepted')).toHaveLength(3);
    expect(outcomes.filter((one) => one === 'repeat')).toHaveLength(6);
  },
);

describe('acceptIntake of a group', () => {
  it('stores the group completely or not at all', async () => {
    const before = await pendingDepth(registry.engine, 1000);
    const keyed = { ...registry.item(), idempotencyKey: 'of-a-failed-group' };
    const broken = { ...registry.item(), lane: 3 as never };
    await expect(accept(keyed, broken)).rejects.toThrow(/check constraint/);
    expect(await pendingDepth(registry.engine, 1000)).toBe(before);
    const bound = await db.sql`select from svc.idempotency_key where key = 'of-a-failed-group'`;
    expect(bound).toHaveLength(0);
  });

  it('rejects a seed of the wrong length, which would shift the bytes of the request', async () => {
    const short = { ...registry.item(), seed: randomBytes(31) };
    await expect(accept(short)).rejects.toThrow(RangeError);
  });

  it('returns a result for each item, in order', async () => {
    const taken = { ...registry.item(), idempotencyKey: 'taken' };
    await accept(taken);
    const items = ['z', 'taken', 'a'].map((idempotencyKey) => ({
      ...registry.item(),
      idempotencyKey,
    }));
    const [repeat, plain] = [fresh(taken), registry.item()];
    const otherType: IntakeItem = { ...fresh(taken), lane: 2 };
    expect(await accept(items[0]!, repeat, items[1]!, plain, items[2]!, otherType)).toEqual([
      { outcome: 'accepted', proofId: items[0]!.proofId },
      { outcome: 'repeat', proofId: taken.proofId },
      { outcome: 'idempotency_conflict' },
      { outcome: 'accepted', proofId: plain.proofId },
      { outcome: 'accepted', proofId: items[2]!.proofId },
      { outcome: 'accepted', proofId: otherType.proofId },
    ]);
  });
});

it('svc.intake > limits the size of a row, and rejects a time before the transaction', async () => {
  const store = (seconds: number, change: Partial<IntakeItem> = {}) => {
    const item = { ...registry.item(), ...change };
    return asTenants(registry.engine, [item.tenantNo], async (tx) => {
      const policy = await pinPolicy(tx);
      const at = new Date(policy.at.getTime() - seconds * 1000);
      const stored = await storeAdmissions(tx, [item], {
        policy: { ...policy, at },
        singly: false,
      });
      return stored.size;
    });
  };
  expect(await store(50, { request: Buffer.alloc(65_536) })).toBe(1);
  await expect(store(0, { request: Buffer.alloc(65_537) })).rejects.toThrow(/check constraint/);
  await expect(store(70)).rejects.toThrow('a time before its transaction');
});

it('svc.intake > takes no admission as rejected, or in a transaction whose snapshot may lack an overlay', async () => {
  await registry.admitAll([registry.item()]);
  const copy = (isolation: string, refused: boolean) =>
    db.sql.begin(`isolation level ${isolation}`, async (tx) => {
      const request_hash = `\\x${randomBytes(32).toString('hex')}`;
      const change = { proof_id: randomUUID(), request_hash, refused };
      await tx`insert into svc.intake
        select (jsonb_populate_record(i, ${tx.json(change)})).* from svc.intake i limit 1`;
      throw new Error('stored');
    });
  await expect(copy('read committed', false)).rejects.toThrow('stored');
  await expect(copy('repeatable read', false)).rejects.toThrow('isolation level read committed');
  await expect(copy('read committed', true)).rejects.toThrow('inserted as rejected');
});

it('readPinnedIntake > returns only the tenant’s own admission, even without row-level security', async () => {
  const item = registry.item();
  await accept(item);
  // A superuser sees all rows, so only the condition in the query filters them.
  const own = await readPinnedIntake(db.sql, item.tenantNo, item.proofId);
  expect(own?.requestHash).toEqual(Buffer.from(item.requestHash));
  expect(await readPinnedIntake(db.sql, otherTenantNo, item.proofId)).toBeNull();
});

describe('acceptIntake of a repeated request', () => {
  it('returns only an admission of the same tenant and request type', async () => {
    const mine = registry.item();
    const theirs = { ...fresh(mine), tenantNo: otherTenantNo };
    const otherLane: IntakeItem = { ...fresh(mine), lane: 2 };
    for (const item of [mine, theirs, otherLane]) {
      expect(await accept(item)).toEqual([{ outcome: 'accepted', proofId: item.proofId }]);
    }
    for (const item of [mine, theirs, otherLane]) {
      expect(await accept(fresh(item))).toEqual([{ outcome: 'repeat', proofId: item.proofId }]);
    }
  });

  it('creates a new admission after the first was rejected', async () => {
    const [refused, other] = [registry.item(), registry.item()];
    await accept(refused, other);
    await refuse(refused);
    const pending = db.sql`
      insert into svc.intake_pending values (${refused.proofId}::uuid, now())`;
    await expect(pending).rejects.toThrow(/has an outcome/);
    const second = fresh(refused);
    await accept(second);
    expect(await accept(fresh(refused), fresh(other))).toEqual([
      { outcome: 'repeat', proofId: second.proofId },
      { outcome: 'repeat', proofId: other.proofId },
    ]);
  });

  it('creates a new admission when the first is rejected concurrently', async () => {
    const first = registry.item();
    await accept(first);
    // The first admission is rejected after the insert found the conflict, and before the lookup of the admission.
    const between = interposed(registry.engine, /asked\(tenant_no, lane, request_hash/, () =>
      refuse(first),
    );
    const again = fresh(first);
    expect(await acceptIntake(between, [again])).toEqual([
      { outcome: 'accepted', proofId: again.proofId },
    ]);
  });
});

/** A pool that runs `first` once, before the first query that matches `statement`. */
function interposed(pool: Pool, statement: RegExp, first: () => Promise<unknown>): Pool {
  let done = false;
  const watch = <T extends object>(connection: T): T =>
    new Proxy(connection, {
      apply: (target, self, given: [TemplateStringsArray, ...unknown[]]) => {
        const run = (): unknown => Reflect.apply(target as () => unknown, self, given);
        if (done || !statement.test(given[0].join(''))) return run();
        done = true;
        return first().then(run);
      },
    });
  return new Proxy(pool, {
    get: (target, name) =>
      name === 'reserve'
        ? async () => watch(await target.reserve())
        : (Reflect.get(target, name) as unknown),
  });
}
