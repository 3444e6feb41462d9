import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/package-root';
import { acceptBatch } from '#sql/batches/accept';
import { acceptIntake } from '#sql/admissions/accept';
import { toUuid } from '#sql/db/columns';
import { appendRevocation } from '#sql/lifecycle/entries';
import { findParents } from '#sql/admissions/parents';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { workBatches } from '../fixtures/engine.js';
import { eraseProof } from '../fixtures/erase.js';
import { valuesHolding } from '../fixtures/marks.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';

const MARK = 'Maria-Markworth';

let db: TestDatabase;
let registry: TestRegistry;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterAll(() => db.drop());

const eraser = () => db.as('svc_erase');

const erase = (proofId: string) => eraseProof(db, proofId);

async function admitOne(fields: { intent_id?: string; action?: string } = {}): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item(fields)]);
  return id;
}

// Must run first: the tenant has no erasure yet.
describe('erase role', () => {
  const where = (id: string): string => `where proof_id = '${toUuid(id)}'`;
  const record = (id: string): string =>
    `insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
     select proof_id, leaf_index, 'ada', 'x' from svc.proof ${where(id)};`;
  const NULLED = 'aep = null, signature = null, action = null, intent_id = null';
  const intake = (id: string): string =>
    `update svc.intake set request = null, request_hash = null, salt = null ${where(id)};`;
  const run = (statements: string) => eraser().begin((tx) => tx.unsafe(statements));

  const refused: [what: string, statements: (id: string) => string, why: RegExp][] = [
    [
      'payload without a record',
      (id) => `update svc.proof set ${NULLED} ${where(id)}`,
      /no record/,
    ],
    ['a request without a record', (id) => intake(id), /no record/],
    ['a record and no payload', (id) => record(id), /is not erased/],
    [
      'a record and one half',
      (id) => `${record(id)} update svc.proof set ${NULLED} ${where(id)}`,
      /is not erased/,
    ],
    [
      'an AEP alone',
      (id) => `${record(id)} update svc.proof set aep = null ${where(id)}`,
      /only be erased/,
    ],
    [
      'an AEP for another',
      (id) => `${record(id)} update svc.proof set aep = '\\x00' ${where(id)}`,
      /only be erased/,
    ],
    [
      'the effect',
      (id) => `update svc.proof set effect = 'DENY' ${where(id)}`,
      /permission denied/,
    ],
    ['a leaf', () => `update svc.log_entry set at = now()`, /permission denied/],
    ['a row of the log', () => `delete from svc.log_entry`, /permission denied/],
    ['a verdict', () => `update svc.verdict set outcome = 'pass'`, /permission denied/],
    [
      'a place in the log that is another',
      (id) => `insert into svc.erasure values ('${toUuid(id)}', 99, now(), 'ada', 'x');
        ${intake(id)} update svc.proof set ${NULLED} ${where(id)}`,
      /is not erased/,
    ],
    [
      'an input of a tenant without an erasure',
      () => `delete from svc.policy_input`,
      /append-only/,
    ],
    ['a batch without an erasure', () => `update svc.batch set items_hash = null`, /was erased/],
  ];

  it.each(refused)('cannot erase or change %s', async (what, statements, why) => {
    const id = await admitOne();
    if (what.startsWith('a batch')) await batchOf([registry.item()]);
    await expect(run(statements(id))).rejects.toThrow(why);
  });

  it('rejects a restored payload and a deleted record', async () => {
    const id = await admitOne();
    await erase(id);
    await expect(run(`update svc.proof set aep = '\\x01' ${where(id)}`)).rejects.toThrow(
      /only be erased/,
    );
    await expect(run(`delete from svc.erasure`)).rejects.toThrow(/permission denied/);
    await expect(db.sql`delete from svc.erasure`).rejects.toThrow(/append-only/);
    await expect(
      run(`update svc.intake set request = '\\x01', request_hash = sha256('a'), salt = sha256('a')
        ${where(id)}`),
    ).rejects.toThrow(/only be erased/);
  });

  it('does not change that an admission needs its payload on insert', async () => {
    await expect(
      db.sql`insert into svc.intake (proof_id, tenant_no, lane, environment, accepted_at, policy_digest)
        select gen_random_uuid(), tenant_no, lane, environment, accepted_at, policy_digest
        from svc.intake limit 1`,
    ).rejects.toThrow(/has no payload/);
  });
});

describe('erasePayloads', () => {
  it('removes the payload from every table and keeps the commitments', async () => {
    const item = registry.item({ intent_id: MARK, action: 'PAY_MARKWORTH' });
    const [first = ''] = await registry.admitAll([
      { ...item, idempotencyKey: `key-${MARK}`, proofId: item.proofId },
    ]);
    const other = registry.item({ intent_id: `${MARK}-2`, action: 'PAY_MARKWORTH' });
    const batch = await batchOf([other], `batch-${MARK}`);
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: first,
      artifactKind: 'proof',
      reason: `because ${MARK} said so`,
      actor: 'auditor',
      salt: '5'.repeat(64),
    });
    const [entry] = await entries(first);
    const hashes = [item, other].map(({ requestHash }) => Buffer.from(requestHash).toString('hex'));
    const marks = [MARK, 'MARKWORTH', ...hashes, batch.itemsHash];
    const { length } = await valuesHolding(db.sql, marks);
    expect(length).toBeGreaterThan(8);

    await erase(first);
    // The other proof has the same input, which is kept.
    const [kept] = await db.sql`select from svc.policy_input where input like '%MARKWORTH%'::bytea`;
    expect(kept).toBeDefined();
    await erase(other.proofId);
    expect(await valuesHolding(db.sql, marks)).toEqual([]);
    expect(await entries(first)).toContainEqual(entry);
  });

  it('leaves no payload in statistics and dead rows after the documented vacuum statement', async () => {
    const manual = readFileSync(join(packageRoot, 'docs', 'operate.md'), 'utf8');
    const [, statement = ''] = /`(vacuum \(full, analyze\) [^`]+)`/.exec(manual) ?? [];
    const mark = 'SAMPLED_MARKWORTH';
    const items = [1, 2, 3].map((n) => registry.item({ intent_id: `${mark}-${n}`, action: mark }));
    await registry.admitAll(items);
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: items[0]!.proofId,
      artifactKind: 'proof',
      reason: mark,
      actor: 'auditor',
      salt: '7'.repeat(64),
    });
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

  it('erases data added since when repeated', async () => {
    const id = await admitOne();
    await erase(id);
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: id,
      artifactKind: 'proof',
      reason: `once more ${MARK}`,
      actor: 'auditor',
      salt: '6'.repeat(64),
    });
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
      where proof_id = ${toUuid(id)}::uuid`;
    expect(row).toEqual({ leaf_index: null, detail: '' });
  });

  it('releases the deduplication key: the same body is a new admission, also with the same idempotency key', async () => {
    const item = { ...registry.item(), idempotencyKey: 'again' };
    await registry.admitAll([item]);
    await erase(item.proofId);
    const again = { ...item, proofId: registry.item().proofId };
    expect(await acceptIntake(registry.engine, [again])).toEqual([
      { outcome: 'accepted', proofId: again.proofId },
    ]);
  });
});

async function entries(proofId: string): Promise<object[]> {
  return db.sql`
    select leaf_index, kind, aep_hash, proof_record_hash, body from svc.log_entry
    where proof_id = ${toUuid(proofId)}::uuid order by leaf_index`;
}

async function batchOf(
  items: ReturnType<TestRegistry['item']>[],
  idempotencyKey: string | null = null,
): Promise<{ itemsHash: string }> {
  const itemsHash = createHash('sha256').update(randomBytes(8)).digest();
  const [key] = await db.sql<{ key_no: number }[]>`
    insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref)
    values (gen_random_uuid()::text, ${registry.tenantNo}, sha256(''), '{admit}', 'R') returning key_no`;
  const made = await acceptBatch(
    registry.engine,
    {
      batchId: `batch_${registry.item().proofId}`,
      tenantNo: registry.tenantNo,
      keyNo: key!.key_no,
      itemsHash,
      requestId: 'r',
      idempotencyKey,
      total: items.length,
      items: items.map((item, index) => ({
        ...item,
        index,
        requestHash: Buffer.from(item.requestHash).toString('hex'),
      })),
      problems: new Map(),
      salts: randomBytes(32 * items.length),
    },
    { admissions: 1000, batches: 1000, own: 1000 },
  );
  if (made.outcome !== 'accepted') throw new Error(made.outcome);
  await workBatches(registry);
  return { itemsHash: itemsHash.toString('hex') };
}

it('findParents > does not return an erased proof', async () => {
  const id = await admitOne();
  const parents = () => findParents(registry.engine, registry.tenantNo, [id]);
  expect(await parents()).toEqual([{ effect: 'ADMIT', kind: 'action' }]);
  await erase(id);
  expect(await parents()).toEqual([null]);
});
