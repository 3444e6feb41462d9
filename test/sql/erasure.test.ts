import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseEntry } from '#protocol/entries';
import { connect } from '#runtime/postgres/connect';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { findParents } from '#sql/admissions/references';
import { transaction } from '#sql/db/transaction';
import { erasePayloads } from '#sql/erasure/erase';
import { storeBatch, batchItem } from '../fixtures/batch-items.js';
import { workBatches } from '../fixtures/engine.js';
import { withoutTriggers } from '../fixtures/database.js';
import { ERASURE_ORDER, eraseProof } from '../fixtures/erase.js';
import { APPEND_LOCK, holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { valuesHolding } from '../fixtures/marks.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { useRegistry } from '../fixtures/use-registry.js';

const MARK = 'Maria-Markworth';

const { db, registry } = useRegistry('file');

const eraser = () => db.as('svc_erase');

const erase = (proofId: string) => eraseProof(db, proofId);

async function admitOne(fields: { intent_id?: string; action?: string } = {}): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item(fields)]);
  return id;
}

describe('erasePayloads', () => {
  it('removes the payload from every table and keeps the hashes', async () => {
    const item = registry.item({ intent_id: MARK, action: 'PAY_MARKWORTH' });
    const [first = ''] = await registry.admitAll([
      { ...item, idempotencyKey: `key-${MARK}`, proofId: item.proofId },
    ]);
    const other = registry.item({ intent_id: `${MARK}-2`, action: 'PAY_MARKWORTH' });
    const itemsHash = await batchOf([other], `batch-${MARK}`);
    await registry.revoke(first, 'proof', `because ${MARK} said so`);
    const logged = await entries(first);
    expect(logged).toMatchObject([{ kind: 1 }, { kind: 2 }]);
    const hashes = [item, other].map(({ requestHash }) => Buffer.from(requestHash).toString('hex'));
    const marks = [MARK, 'MARKWORTH', ...hashes, itemsHash];
    const { length } = await valuesHolding(db.sql, marks);
    expect(length).toBeGreaterThan(8);

    await erase(first);
    await erase(other.proofId);
    expect(await valuesHolding(db.sql, marks)).toEqual([]);
    expect(await entries(first)).toEqual(logged);
  });

  it('leaves no payload in statistics and dead rows after the documented VACUUM statement', async () => {
    const manual = readFileSync(join(packageRoot, 'docs', 'operate.md'), 'utf8');
    const [, statement = ''] = /`(vacuum \(full, analyze\) [^`]+)`/.exec(manual) ?? [];
    const mark = 'SAMPLED_MARKWORTH';
    const items = [1, 2, 3].map((n) => registry.item({ intent_id: `${mark}-${n}`, action: mark }));
    await registry.admitAll(items);
    await registry.revoke(items[0]!.proofId, 'proof', mark);
    await db.sql.unsafe('analyze');
    const sampled = async (): Promise<string[]> => {
      const rows = await db.sql<{ place: string }[]>`
        select tablename || '.' || attname as place from pg_stats where schemaname = 'svc'
          and (position(${Buffer.from(mark).toString('hex')} in
              coalesce(most_common_vals::text, '') || coalesce(histogram_bounds::text, '')) > 0
            or position(${mark} in
              coalesce(most_common_vals::text, '') || coalesce(histogram_bounds::text, '')) > 0)`;
      return rows.map(({ place }) => place);
    };
    for (const { proofId } of items) await erase(proofId);
    expect(await sampled()).not.toEqual([]);
    await db.sql.unsafe(statement);
    expect(await sampled()).toEqual([]);
    const tables = [...statement.matchAll(/svc\.(\w+)/g)].map(([, name]) => name);
    const erasable = await db.sql<{ name: string }[]>`
      select distinct table_name::text as name from information_schema.role_column_grants
      where grantee = 'svc_erase' and privilege_type = 'UPDATE'
      union select table_name::text from information_schema.role_table_grants
      where grantee = 'svc_erase' and privilege_type = 'DELETE'`;
    expect(tables.sort()).toEqual(erasable.map(({ name }) => name).sort());
  });

  it('erases data that was added after the first erasure when the erasure is repeated', async () => {
    const id = await admitOne();
    await erase(id);
    await registry.revoke(id, 'proof', `once more ${MARK}`);
    expect(await valuesHolding(db.sql, [MARK])).not.toEqual([]);
    await erase(id);
    expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
  });

  it('erases a rejected admission and its rejection', async () => {
    await db.sql`update svc.tenant set allowlisted = false where tenant_no = ${registry.tenantNo}`;
    const [id = ''] = await registry.admitAll([registry.item({ intent_id: `${MARK}-refused` })]);
    await db.sql`update svc.tenant set allowlisted = true where tenant_no = ${registry.tenantNo}`;
    expect(await erase(id)).toMatchObject([{ isNew: true }]);
    expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
    const [row] = await db.sql`
      select leaf_index, r.detail from svc.erasure join svc.refusal r using (proof_id)
      where proof_id = ${id}::uuid`;
    expect(row).toEqual({ leaf_index: null, detail: '' });
  });

  it('erases rejected admissions with an equal request too', async () => {
    const first = { ...registry.item({ intent_id: `${MARK}-again` }), idempotencyKey: 'retried' };
    await db.sql`update svc.tenant set allowlisted = false where tenant_no = ${registry.tenantNo}`;
    await registry.admitAll([first]);
    await db.sql`update svc.tenant set allowlisted = true where tenant_no = ${registry.tenantNo}`;
    const second = { ...first, proofId: registry.item().proofId };
    await registry.admitAll([second]);
    const erased = await erase(second.proofId);
    const ids = erased.map(({ proofId }) => proofId);
    expect(ids.sort()).toEqual([first.proofId, second.proofId].sort());
    expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
    expect(await db.sql`select from svc.idempotency_key where key = 'retried'`).toHaveLength(0);
  });
});

async function entries(proofId: string): Promise<object[]> {
  return db.sql`
    select leaf_index, kind, aep_hash, proof_record_hash, body from svc.log_entry
    where ${proofId}::uuid in (proof_id, revokes) order by leaf_index`;
}

/** Stores and processes a batch, and returns its hash in hex. */
async function batchOf(items: IntakeItem[], idempotencyKey?: string): Promise<string> {
  const itemsHash = randomBytes(32);
  await storeBatch(registry, items.map(batchItem), { idempotencyKey, itemsHash });
  await workBatches(registry);
  return itemsHash.toString('hex');
}

it('findParents > does not return an erased proof', async () => {
  const id = await admitOne();
  const parents = () => findParents(registry.engine, registry.tenantNo, [id]);
  expect(await parents()).toEqual([{ effect: 'ADMIT', kind: 'action' }]);
  await erase(id);
  expect(await parents()).toEqual([null]);
});

it('erasePayloads > appends one erasure entry with merged ranges, and none when repeated', async () => {
  const ids = await registry.admitAll(Array.from({ length: 5 }, () => registry.item()));
  const erased = [4, 1, 0].map((n) => ids[n]!);
  const pending = registry.item();
  await acceptIntake(registry.engine, [pending]);
  const run = () =>
    transaction(eraser(), (tx) => erasePayloads(tx, [...erased, pending.proofId], ERASURE_ORDER));
  expect([(await run()).length, (await run()).length]).toEqual([3, 3]);
  const [first] = await db.sql<[{ at: number }]>`
    select leaf_index as at from svc.log_entry where proof_id = ${ids[0]!}`;
  const rows = await db.sql<{ body: Buffer }[]>`
    select body from svc.log_entry where kind = 4 and leaf_index > ${first.at}`;
  const { at } = first;
  expect(rows.map(({ body }) => parseEntry(body))).toMatchObject([
    {
      cause: 'erased',
      ranges: [
        [at, at + 2],
        [at + 4, at + 5],
      ],
    },
  ]);
});

it('erasePayloads > records an erasure once when two transactions erase the same proof', async () => {
  const id = await admitOne();
  const eraseHere = (during?: () => Promise<void>) =>
    transaction(eraser(), async (tx) => {
      const erased = await erasePayloads(tx, [id], ERASURE_ORDER);
      await during?.();
      return erased.map(({ isNew }) => isNew);
    });
  let second: Promise<boolean[]> | undefined;
  const first = await eraseHere(() => {
    second = eraseHere();
    second.catch(() => undefined);
    return untilWaiting(db.sql);
  });
  expect([first, await second]).toEqual([[true], [false]]);
});

it.each<[string, (id: string) => string, isNew: boolean]>([
  [
    'an altered row lost its request',
    (id) => `update svc.intake set request = null where proof_id = '${id}'`,
    true,
  ],
  [
    'an erasure record was inserted and the payload kept',
    (id) => `insert into svc.erasure select proof_id, leaf_index, now(), 'eve', 'x'
      from svc.log_entry where proof_id = '${id}'`,
    false,
  ],
])('erasePayloads > erases the rest of the payload when %s', async (_, damage, isNew) => {
  const id = await admitOne({ intent_id: `${MARK}-damaged` });
  await withoutTriggers(db, damage(id));
  expect(await erase(id)).toMatchObject([{ proofId: id, isNew }]);
  expect(await valuesHolding(db.sql, [MARK])).toEqual([]);
  expect(await db.sql`select from svc.erasure where proof_id = ${id}`).toHaveLength(1);
});

it('eraseAdmission > leaves no hash of the item in a batch that repeats the item during the erasure', async () => {
  const item = registry.item();
  await batchOf([item]);
  const proxy = await TcpProxy.open(db.url, 'postgres');
  const engine = connect(proxy.urlFor(db.urlFor('svc_engine')), { application: 'test' });
  const storing = proxy.set({
    matches: (sql) => /^\s*insert into svc.batch_part /.test(sql),
    breaks: 'answered',
    then: () => proxy.stall(true),
  });
  const through = Object.create(registry, { engine: { value: engine } }) as typeof registry;
  const repeated = { ...item, proofId: registry.item().proofId };
  const repeating = storeBatch(through, [repeated, registry.item()].map(batchItem));
  await storing;
  const erasing = erase(item.proofId);
  await Promise.race([erasing, untilWaiting(db.sql)]);
  proxy.stall(false);
  expect(await repeating).toMatchObject({ outcome: 'accepted' });
  await erasing;
  const hashes = await db.sql<{ hash: Buffer | null }[]>`
    select items_hash as hash from svc.batch join svc.batch_part using (batch_id)
    where ${item.proofId}::uuid = any(proof_ids)`;
  expect(hashes).toEqual([{ hash: null }, { hash: null }]);
  await engine.end();
  await proxy.close();
  await workBatches(registry);
});

it('eraseAdmission > takes the append lock only after it has erased the batches', async () => {
  const item = registry.item();
  await batchOf([item]);
  const release = await holdLock(db.sql, 'select from svc.batch for update');
  const erasing = erase(item.proofId);
  await untilWaiting(db.sql);
  await expect(db.sql.unsafe(`${APPEND_LOCK} nowait`)).resolves.toHaveLength(1);
  await release();
  await erasing;
});
