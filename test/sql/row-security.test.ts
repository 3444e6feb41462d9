import { randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import {
  type Pool,
  type Transaction,
  transaction,
  asTenants,
  readAsTenants,
} from '#sql/db/transaction';
import { acceptIntake } from '#sql/admissions/intake';
import { assertRole, frozenRights } from '#sql/db/roles';
import { readOutcomes } from '#sql/admissions/outcomes';
import { itemWith } from '../fixtures/admissions.js';
import { acceptedBatch } from '../fixtures/batch-items.js';
import { withoutTriggers } from '../fixtures/database.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
let ours: number;
let theirs: number;
/** A proof of each tenant. */
let ourProof: string;
let theirProof: string;
let ourBatch: string;
let theirBatch: string;
let theirPackage: string;
let theirToken: Buffer;
let theirRequest: string;
/** A pending admission of the first tenant. */
let ourOpen: string;

beforeAll(async () => {
  ours = registry.tenantNo;
  theirs = await registry.addTenant('rival');
  [ourProof = '', theirProof = ''] = await registry.admitAll([
    registry.item(),
    { ...itemWith(registry, { tenant_id: 'rival' }), tenantNo: theirs },
  ]);
  await acceptIntake(registry.engine, [registry.item()]);
  for (const [tenant, proof] of [
    [ours, ourProof],
    [theirs, theirProof],
  ] as const) {
    await db.sql`
      insert into svc.idempotency_key values (${tenant}, 1, 'key', ${randomBytes(32)}, now())`;
    await asTenants(registry.engine, [tenant], (tx) => fill(tx, tenant, proof));
    await db.sql`insert into svc.chunk_lease (tenant_no) values (${tenant})`;
    await withoutTriggers(
      db,
      `with overlay as (insert into svc.overlay (tenant_no, digest, document, key_no)
        values (${tenant}, sha256('overlay'), '', 1) returning digest)
      insert into svc.overlay_set select ${tenant}, o.digest, s.digest, o.digest, '', '{"overlay.a":""}',
        '{}', '{}' from overlay o, svc.policy_set s`,
    );
    await db.sql`
      insert into svc.counter values (${tenant}, ${randomBytes(32)}, '2026-11-20', 'refunds', 1, 0)`;
  }
  await acceptedBatch(registry, 1);
  await acceptedBatch(registry, 1, 'rival');
  await db.sql`insert into svc.refusal select proof_id, 'lane_locked', '' from svc.intake`;
  await withoutTriggers(
    db,
    `insert into svc.erasure
      select proof_id, leaf_index, now(), 'ada', 'x' from svc.log_entry where kind = 1`,
  );
  await db.sql`
    insert into svc.approver (registration_hash, tenant_no, document)
    select sha256(int4send(tenant_no)), tenant_no, '' from svc.tenant`;
  await db.sql`insert into svc.share_expiry select token_hash from svc.share_token`;
  await db.sql`
    insert into svc.status_exception
    select tenant_no, leaf_index from svc.log_entry where kind = 1`;
  const batchOf = async (tenant: number): Promise<string> => {
    const [row] = await db.sql<{ id: string }[]>`
      select batch_id::text as id from svc.batch where tenant_no = ${tenant}`;
    return row!.id;
  };
  [ourBatch, theirBatch] = [await batchOf(ours), await batchOf(theirs)];
  const [bundle] = await db.sql<{ id: string }[]>`
    select package_id::text as id from svc.trust_package where tenant_no = ${theirs}`;
  theirPackage = bundle!.id;
  const [row] = await db.sql<{ token: Buffer; request: string }[]>`
    select token_hash as token, request_id::text as request
    from svc.share_token join svc.revocation_request using (tenant_no) where tenant_no = ${theirs}`;
  ({ token: theirToken, request: theirRequest } = row!);
  const open = registry.item();
  await acceptIntake(registry.engine, [open]);
  ourOpen = open.proofId;
});

async function fill(tx: Transaction, tenant: number, proof: string): Promise<void> {
  const hash = randomBytes(32);
  await tx`
    insert into svc.revocation_request
      (request_id, tenant_no, key_no, proof_id, artifact_kind, reason_hash, document)
    values (gen_random_uuid(), ${tenant}, 1, ${proof}::uuid, 'trust', ${hash}, ${hash})`;
  await tx`
    insert into svc.revocation_pending
    select request_id, requested_at from svc.revocation_request where tenant_no = ${tenant}`;
  await tx`
    insert into svc.trust_package (package_id, tenant_no, key_no, members_hash)
    values (gen_random_uuid(), ${tenant}, 1, ${hash})`;
  await tx`
    insert into svc.package_member (package_id, position, proof_id)
    select package_id, 0, ${proof}::uuid from svc.trust_package where tenant_no = ${tenant}`;
  await tx`
    insert into svc.share_token
      (token_hash, tenant_no, key_no, artifact_kind, proof_id, created_at, expires_at)
    values (${hash}, ${tenant}, 1, 'proof', ${proof}::uuid, now(), now() + interval '1 day')`;
  await tx`insert into svc.share_revocation (token_hash, key_no) values (${hash}, 1)`;
  const [made] = await tx<{ batch: string }[]>`
    insert into svc.batch (batch_id, tenant_no, key_no, items_hash, total, request_id, accepted_at)
    values (gen_random_uuid(), ${tenant}, 1, ${hash}, 1, 'r', now()) returning batch_id::text as batch`;
  const batch = made?.batch ?? '';
  await tx`
    insert into svc.batch_part (batch_id, first_index, proof_ids)
    values (${batch}::uuid, 0, array[${proof}::uuid])`;
  await tx`
    insert into svc.batch_progress values (${batch}::uuid, ${tenant}, 1, 1, 0, 0, 0, 0, 0, 0, null)`;
  await tx`insert into svc.batch_watch values (${proof}::uuid, ${batch}::uuid, 1)`;
}

const count = async (tx: Pick<Transaction, 'unsafe'>, table: string): Promise<number> => {
  const rows = await tx.unsafe<{ n: number }[]>(
    `select count(${table === 'erasure' ? 'proof_id' : '*'})::int as n from svc.${table}
    ${table === 'log_entry' ? 'where kind = 1' : ''}`,
  );
  return rows[0]?.n ?? -1;
};

/** Tenant tables that the engine must not read. */
const { rights, tenantTables } = await frozenRights();
const kept = tenantTables.filter(
  (table) =>
    !rights.engine.some((right) => right.table === table && right.name.startsWith('SELECT')),
);

describe('the tenant tables of the frozen schema', () => {
  it('are exactly the tables with tenant rows, and exactly the tables with row-level security', async () => {
    const found = await db.sql<{ name: string }[]>`
      with recursive owned as (
        select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
        join pg_attribute a on a.attrelid = c.oid and a.attname in ('tenant_no', 'proof_id')
        where c.relkind = 'r' and c.relname not in ('tenant', 'trace')
        union
        select k.conrelid from owned o join pg_constraint k on k.confrelid = o.oid and k.contype = 'f')
      select relname as name from owned join pg_class using (oid) order by 1`;
    expect(found.map(({ name }) => name)).toEqual(tenantTables);
    const guarded = await db.sql<{ name: string }[]>`
      select relname as name from pg_class where relrowsecurity and relforcerowsecurity order by 1`;
    expect(guarded.map(({ name }) => name)).toEqual(tenantTables);
  });

  it.each(kept)('table %s is closed to the engine, by privilege and by policy', async (table) => {
    const look = () => asTenants(registry.engine, [ours, theirs], (tx) => count(tx, table));
    await expect(look()).rejects.toThrow(/permission denied/);
    await db.sql.unsafe(`grant select on svc.${table} to svc_engine`);
    try {
      expect(await look()).toBe(0);
    } finally {
      await db.sql.unsafe(`revoke select on svc.${table} from svc_engine`);
    }
    expect(await count(db.sql, table)).toBeGreaterThan(0);
  });

  const open = tenantTables.filter((table) => !kept.includes(table));
  it.each(open)('table %s shows the engine only rows of the tenants in scope', async (table) => {
    const all = await count(db.sql, table);
    const ofBoth = await asTenants(registry.engine, [ours, theirs], (tx) => count(tx, table));
    const ofOurs = await asTenants(registry.engine, [ours], (tx) => count(tx, table));
    const ofTheirs = await asTenants(registry.engine, [theirs], (tx) => count(tx, table));
    expect(ofBoth).toBe(all);
    expect(ofOurs).toBeGreaterThan(0);
    expect(ofOurs + ofTheirs).toBe(all);
    if (table !== 'intake_pending') expect(ofTheirs).toBeGreaterThan(0);
    expect(await asTenants(registry.engine, [], (tx) => count(tx, table))).toBe(0);
    // Without a tenant scope, or after a transaction with one, only API keys are visible, to authenticate.
    const unscoped = table === 'api_key' ? all : 0;
    expect(await count(registry.engine, table)).toBe(unscoped);
    expect(await count(db.as('svc_engine'), table)).toBe(unscoped);
  });

  it('table log_entry shows the engine all status and key entries, which are public', async () => {
    await registry.revoke(theirProof);
    for (const tenants of [[], [ours]]) {
      const rows = await asTenants(
        registry.engine,
        tenants,
        (tx) => tx`select kind from svc.log_entry where kind <> 1 order by kind`,
      );
      expect(rows).toEqual([{ kind: 2 }, { kind: 3 }]);
    }
  });

  it.each(['worker', 'verifier', 'publisher', 'admin'])(
    'are visible with all rows to the %s role, if the role may read them',
    async (program) => {
      const sql = db.as(`svc_${program}`);
      for (const table of tenantTables) {
        const [may] = await sql<{ read: boolean }[]>`
          select has_table_privilege(${`svc.${table}`}, 'select') as read`;
        if (may?.read === true) expect(await count(sql, table)).toBe(await count(db.sql, table));
      }
      await sql.end();
    },
  );
});

describe('engine role', () => {
  const refused = /violates row-level security/;
  const hash = randomBytes(32);

  it('can insert only rows of the tenant in scope', async () => {
    const insert = asTenants(registry.engine, [ours], (tx) => fill(tx, theirs, theirProof));
    await expect(insert).rejects.toThrow(refused);
    const accepted = asTenants(
      registry.engine,
      [theirs],
      (tx) => tx`insert into svc.intake_pending select proof_id, now() from svc.intake`,
    );
    await expect(accepted).rejects.toThrow(/has an outcome/);
    const pending = asTenants(
      registry.engine,
      [ours],
      (tx) => tx`insert into svc.intake_pending values (${theirProof}::uuid, now())`,
    );
    await expect(pending).rejects.toThrow(refused);
  });

  it.each([
    [
      'a revocation',
      (tx: Transaction) => tx`
        insert into svc.revocation_request
          (request_id, tenant_no, key_no, proof_id, artifact_kind, reason_hash, document)
        values (gen_random_uuid(), ${ours}, 1, ${theirProof}::uuid, 'proof', ${hash}, ${hash})`,
    ],
    [
      'a share token',
      (tx: Transaction) => tx`
        insert into svc.share_token (token_hash, tenant_no, key_no, artifact_kind, proof_id)
        values (${hash}, ${ours}, 1, 'proof', ${theirProof}::uuid)`,
    ],
    [
      'a share token of a package',
      (tx: Transaction) => tx`
        insert into svc.share_token (token_hash, tenant_no, key_no, artifact_kind, package_id)
        values (${hash}, ${ours}, 1, 'package', ${theirPackage}::uuid)`,
    ],
    [
      'a member of a package',
      (tx: Transaction) => tx`
        insert into svc.package_member (package_id, position, proof_id)
        select package_id, 9, ${theirProof}::uuid from svc.trust_package where tenant_no = ${ours}`,
    ],
    [
      'a watch of a batch',
      (tx: Transaction) => tx`
        insert into svc.batch_watch values (${theirProof}::uuid, ${ourBatch}::uuid, 1)`,
    ],
    [
      'a split admission of a batch',
      (tx: Transaction) => tx`
        insert into svc.intake_pending values (${ourOpen}::uuid, now(), ${theirBatch}::uuid, 1)`,
    ],
    [
      'the progress of a batch',
      (tx: Transaction) => tx`
        insert into svc.batch_progress
        values (${theirBatch}::uuid, ${ours}, 0, 0, 0, 0, 0, 0, 0, 0, now())`,
    ],
    [
      'a pending chunk of a batch',
      (tx: Transaction) => tx`
        insert into svc.chunk_pending
        values (${ourOpen}::uuid, ${theirBatch}::uuid, 9, ${ours}, now(), 1, null, null)`,
    ],
  ])('can insert %s only if it refers to a proof of the tenant in scope', async (_, insert) => {
    const foreignKeyAlone = asTenants(registry.engine, [ours], (tx) => insert(tx));
    await expect(foreignKeyAlone).rejects.toThrow(refused);
    // The reference is rejected even when both tenants are in scope, as in a group of admissions.
    await expect(asTenants(registry.engine, [ours, theirs], (tx) => insert(tx))).rejects.toThrow(
      refused,
    );
  });

  it.each<[string, (tx: Transaction) => Promise<unknown>]>([
    [
      'an admission',
      (tx) => tx`
        insert into svc.intake (proof_id, tenant_no, lane, environment, accepted_at, policy_digest)
        values (gen_random_uuid(), ${theirs}, 1, 'sandbox', now(), ${hash})`,
    ],
    [
      'an idempotency key',
      (tx) => tx`insert into svc.idempotency_key values (${theirs}, 1, 'other', ${hash}, now())`,
    ],
    [
      'a batch',
      (tx) => tx`
        insert into svc.batch values (gen_random_uuid(), ${theirs}, 1, ${hash}, 1, 'r', now())`,
    ],
    [
      'a chunk of a batch',
      (tx) => tx`
        insert into svc.batch_part (batch_id, first_index, proof_ids)
        values (${theirBatch}::uuid, 9, array[${ourProof}::uuid])`,
    ],
    [
      'a package',
      (tx) => tx`insert into svc.trust_package values (gen_random_uuid(), ${theirs}, 1, ${hash})`,
    ],
    [
      'the revocation of a share token',
      (tx) => tx`insert into svc.share_revocation (token_hash, key_no) values (${theirToken}, 1)`,
    ],
    [
      'a pending revocation',
      (tx) => tx`insert into svc.revocation_pending values (${theirRequest}::uuid, now())`,
    ],
  ])('can insert %s only for the tenant in scope', async (_, insert) => {
    await expect(asTenants(registry.engine, [ours], (tx) => insert(tx))).rejects.toThrow(refused);
  });
});

it('readOutcomes > returns an outcome only to the tenant of the admission, even in a query for several tenants', async () => {
  const asked = await readOutcomes(registry.engine, [
    { tenantNo: ours, id: ourProof },
    { tenantNo: ours, id: theirProof },
  ]);
  expect([...asked.keys()]).toEqual([ourProof]);
  const both = await readOutcomes(registry.engine, [
    { tenantNo: ours, id: ourProof },
    { tenantNo: theirs, id: theirProof },
  ]);
  expect(both.size).toBe(2);
  const crossed = await readOutcomes(registry.engine, [
    { tenantNo: theirs, id: ourProof },
    { tenantNo: ours, id: theirProof },
  ]);
  expect(crossed.size).toBe(0);
});

it.each([
  ['commits', (sql: Pool) => asTenants(sql, [ours], () => Promise.resolve(1))],
  ['only reads', (sql: Pool) => readAsTenants(sql, [ours], (tx) => tx`select 1`)],
  ['fails', (sql: Pool) => asTenants(sql, [ours], (tx) => tx`select 1 / 0`)],
  ['only reads, and fails', (sql: Pool) => readAsTenants(sql, [ours], (tx) => tx`select 1 / 0`)],
])(
  'tenant scope of a transaction > does not apply to the next transaction on its connection after it %s',
  async (how, use) => {
    const sql = connect(db.url, { application: 'test', max: 1 });
    const left = () =>
      transaction(
        sql,
        (tx) => tx<{ pid: number; scope: string }[]>`
        select pg_backend_pid() as pid, coalesce(current_setting('svc.tenants', true), '') as scope`,
      );
    const [before] = await left();
    const [outcome] = await Promise.allSettled([use(sql)]);
    expect(outcome.status).toBe(how.includes('fails') ? 'rejected' : 'fulfilled');
    expect([...(await left())]).toEqual([{ pid: before?.pid, scope: '' }]);
    await sql.end();
  },
);

it.each([
  [
    'on a table without row-level security',
    'alter table svc.log_entry disable row level security',
    'alter table svc.log_entry enable row level security',
  ],
  [
    'on a table without forced row-level security',
    'alter table svc.log_entry no force row level security',
    'alter table svc.log_entry force row level security',
  ],
  [
    'with a policy that shows every row',
    'create policy wide on svc.log_entry to svc_engine using (true)',
    'drop policy wide on svc.log_entry',
  ],
  [
    'with a policy that shows every row to all roles',
    'create policy wide on svc.log_entry using (true)',
    'drop policy wide on svc.log_entry',
  ],
])('assertRole rejects the engine role > %s', async (_, break_, repair) => {
  const engine = db.as('svc_engine');
  await db.sql.unsafe(break_);
  try {
    await expect(assertRole(engine, 'engine')).rejects.toThrow(/rows of every tenant in log_entry/);
  } finally {
    await db.sql.unsafe(repair);
  }
  await assertRole(engine, 'engine');
  await engine.end();
});
