import { beforeAll, describe, expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { putFixture } from '#sql/tenants/administration';
import { openRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

/** Tables whose rows may be deleted: settings, queues and the state of a program. */
const DELETABLE = [
  ...[
    'api_key',
    'batch_watch',
    'chunk_lease',
    'chunk_pending',
    'erasure_due',
    'expiry',
    'heartbeat',
  ],
  ...['idempotency_key', 'intake_pending', 'lane', 'maintenance', 'refusal', 'revocation_pending'],
  ...['scrub', 'share_due', 'trace', 'upkeep'],
];

/** The required columns of each kind of log entry, as SQL. */
const OF_ALL = { leaf_index: '900', at: 'now()' };
const OF_PROOF = {
  tenant_no: '1',
  lane: '1',
  is_outcome: 'false',
  proof_id: 'gen_random_uuid()',
  effect: `'ADMIT'`,
  environment: `'sandbox'`,
  key_id: `'k'`,
  aep_hash: `sha256('x')`,
  proof_record_hash: `sha256('x')`,
  engine_version: `'1'`,
};
const PROOF = { ...OF_ALL, kind: '1', ...OF_PROOF };
const STATUS = { ...OF_ALL, kind: '2', revokes: 'gen_random_uuid()', body: `'x'` };
const KEY = { ...OF_ALL, kind: '3', body: `'x'` };
const PAYLOAD = {
  signature: `'x'`,
  reasons: `'[]'`,
  budgets: `'{}'`,
  action: `'A'`,
  intent_id: `'i'`,
};

const insertOf = (row: Record<string, string>): string =>
  `insert into svc.log_entry (${Object.keys(row).join()}) values (${Object.values(row).join()})`;

describe('append-only tables', () => {
  const db = useDatabase('file');
  beforeAll(async () => {
    const registry = await openRegistry(db);
    const content = Buffer.from('{}');
    const fixture = { fixtureRef: 'f', fixtureHash: nativeSha256(content), content };
    await putFixture(registry.admin, fixture);
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.revoke(id);
    await registry.verifyAll();
    await db.sql`insert into svc.checkpoint (tree_size, root, note) values (1, ${Buffer.alloc(32)}, '')`;
    await db.sql`insert into svc.tile values (7, 0, ${Buffer.alloc(64, 1)})`;
  });

  // The triggers also bind the owner. A superuser can disable them, but the verifier detects the
  // change.
  it.each([
    ['log_entry', 'at = now()'],
    ['log_entry', 'signature = null where kind = 1'],
    ['log_entry', `reasons = '[]'`],
    [
      'log_entry',
      `at = now(), signature = null, reasons = null, budgets = null, action = null, intent_id = null`,
    ],
    ['checkpoint', `note = 'x'`],
    ['verdict', `outcome = 'pass'`],
    ['policy_set', `files = '{}'`],
    ['policy_activation', 'active_from = now()'],
    ['fixture', `content = ''`],
  ])('reject updates and deletes even by their owner: %s (%s)', async (table, change) => {
    await expect(db.sql.unsafe(`update svc.${table} set ${change}`)).rejects.toThrow(/append-only/);
    await expect(db.sql.unsafe(`delete from svc.${table}`)).rejects.toThrow(/append-only/);
  });

  it('are all tables except settings, queues and the state of a program', async () => {
    const lacking = (kinds: number[]) => db.sql<{ name: string }[]>`
      select relname as name from pg_class c
      where relnamespace = 'svc'::regnamespace and relkind = 'r' and exists (
        select from unnest(${kinds}::int[]) as kind where not exists (
          select from pg_trigger t where t.tgrelid = c.oid and t.tgenabled = 'O' and t.tgqual is null
            and t.tgtype & 2 > 0 and t.tgtype & kind > 0 and t.tgattr::text = ''))
      order by 1`;
    const [DELETE, UPDATE, TRUNCATE] = [8, 16, 32];
    const names = async (...kinds: number[]) => (await lacking(kinds)).map(({ name }) => name);
    expect(await names(DELETE, TRUNCATE)).toEqual(DELETABLE);
    // Triggers of these tables depend on the column or the change.
    const limited = ['intake', 'revocation_request', 'tenant'];
    const updatable = [...DELETABLE, ...limited].filter((name) => name !== 'refusal').sort();
    expect(await names(UPDATE)).toEqual(updatable);
    await expect(db.sql`truncate svc.verdict`).rejects.toThrow('svc.verdict is append-only');
  });

  it('allow a change of a tile only when it appends hashes', async () => {
    const set = (hashes: Buffer) => db.sql`update svc.tile set hashes = ${hashes} where level = 7`;
    const longer = Buffer.concat([Buffer.alloc(64, 1), Buffer.alloc(32, 2)]);
    await expect(set(Buffer.alloc(32, 1))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(64, 1))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(64, 2))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(96, 2))).rejects.toThrow(/extended/);
    for (const elsewhere of ['level = 6', 'tile_index = 1']) {
      const moved = db.sql.unsafe(`update svc.tile set ${elsewhere}, hashes = $1 where level = 7`, [
        longer,
      ] as never);
      await expect(moved).rejects.toThrow(/extended/);
    }
    await set(longer);
  });

  it('reject a decrease of a counter', async () => {
    await db.sql`insert into svc.counter
      select tenant_no, sha256('x'), '2026-11-20', 'refunds', 5, 1 from svc.tenant`;
    const changes = ['value = 4, leaf_index = 2', 'value = 6', `leaf_index = 2, period = 'other'`];
    for (const change of changes) {
      const changed = db.sql.unsafe(`update svc.counter set ${change}`);
      await expect(changed).rejects.toThrow('svc.counter may only grow');
    }
    await db.sql`update svc.counter set value = 6, leaf_index = 2`;
  });

  it('reject leaves at or beyond the log head, and a head beyond the leaves', async () => {
    const behind = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      values (1, 3, now(), '\\x01')`;
    await expect(behind).rejects.toThrow(/behind the head/);
    await expect(db.sql`update svc.log_head set tree_size = 900`).rejects.toThrow(/no 900 leaves/);
    const [{ next }] = await db.sql<[{ next: number }]>`
      select tree_size::int + 1 as next from svc.log_head`;
    const overGap = db.sql.begin(async (tx) => {
      await tx.unsafe(insertOf({ ...KEY, leaf_index: String(next) }));
      await tx`update svc.log_head set tree_size = ${next}`;
    });
    await expect(overGap).rejects.toThrow(`no ${next} leaves`);
  });

  it('let the worker role append only proofs of accepted admissions, and the admin role only other kinds', async () => {
    const status = db.as('svc_worker')`insert into svc.log_entry (leaf_index, kind, at, body)
      values (2, 3, now(), '\\x01')`;
    await expect(status).rejects.toThrow(/may not append entries of kind 3/);
    const proof = db.as('svc_admin').unsafe(insertOf(PROOF));
    await expect(proof).rejects.toThrow(/may not append entries of kind 1/);
    const adopted = {
      ...PROOF,
      tenant_no: 'null',
      lane: 'null',
      engine_version: 'null',
      body: `'x'`,
    };
    const stranger = db.as('svc_worker').unsafe(insertOf(adopted));
    await expect(stranger).rejects.toThrow('svc.log_entry is append-only: INSERT refused');
  });

  it.each([
    ['a proof as a key entry', '3', `{"type":"proof"}`],
    ['an erasure as a status entry', '2', `{"type":"erasure"}`],
    ['a status entry of another proof', '2', `{"type":"status","proof_id":"${'1'.repeat(32)}"}`],
  ])('do not let the admin role append %s', async (_, kind, body) => {
    const row = { ...(kind === '2' ? STATUS : KEY), body: `convert_to('${body}', 'UTF8')` };
    const appended = db.as('svc_admin').unsafe(insertOf(row));
    await expect(appended).rejects.toThrow(`the body is not an entry of kind ${kind}`);
  });

  it('require an intake row for pending and proved rows, and a tenant and a readable number for each intake', async () => {
    const stranger = '0190aaaa-0000-7000-8000-000000000000';
    const points = (statement: string) =>
      expect(db.sql.unsafe(statement), statement).rejects.toMatchObject({ code: '23503' });
    await points(insertOf({ ...PROOF, proof_id: `'${stranger}'` }));
    await points(`insert into svc.intake_pending values ('${stranger}', now())`);
    const proved = db.sql`insert into svc.intake_pending select proof_id, now() from svc.intake`;
    await expect(proved).rejects.toThrow(/has an outcome/);
    const copy = (tenant: string, digest: string) => `
      insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
        accepted_at, seed, policy_digest, validity)
      select '${stranger}', ${tenant}, lane, environment, request, sha256('other'), accepted_at, seed,
        ${digest}, validity from svc.intake limit 1`;
    await points(copy('tenant_no + 99', 'policy_digest'));
    await points(copy('tenant_no', `sha256('x')`));
    for (const column of ['proof_id', 'tenant_no', 'policy_digest', 'approves']) {
      const changed = db.sql.unsafe(`update svc.intake set ${column} = ${column}`);
      await expect(changed).rejects.toThrow(/append-only/);
    }
    await expect(db.sql`update svc.tenant set tenant_no = default`).rejects.toThrow(/append-only/);
    const numbered = db.sql`
      update svc.intake set run_key = sha256('x'), run_closes = false, run_seq = 9007199254740992`;
    await expect(numbered).rejects.toThrow(/check constraint/);
  });

  it('reject the proof of a rejected admission', async () => {
    const proved = db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`; // no trigger prevents the first changes
      const [entry] = await tx<{ proof_id: string }[]>`
        delete from svc.log_entry where kind = 1 returning proof_id::text`;
      await tx`update svc.intake set refused = true`;
      await tx`set local session_replication_role = origin`;
      await tx.unsafe(insertOf({ ...PROOF, proof_id: `'${entry?.proof_id ?? ''}'` }));
    });
    await expect(proved).rejects.toThrow(/was rejected/);
  });

  it('check every leaf that a statement inserts, not only the first', async () => {
    const [head] = await db.sql<{ size: number }[]>`select tree_size as size from svc.log_head`;
    const size = Number(head?.size);
    const both = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      select n, 3, now(), '\\x01' from unnest(${[size + 5, size - 1, size + 6]}::bigint[]) as n`;
    await expect(both).rejects.toThrow(`leaf ${size - 1} is behind the head`);
  });

  it('reject a second proof of an admission', async () => {
    const again = insertOf({ ...PROOF, proof_id: '(select proof_id from svc.intake)' });
    await expect(db.as('svc_worker').unsafe(again)).rejects.toThrow(/unique constraint/);
  });

  it('reject a proof in a gap below the log head', async () => {
    const [lost] = await db.sql<{ leaf_index: string }[]>`
      select leaf_index from svc.log_entry where kind = 1 order by leaf_index limit 1`;
    const leaf = Number(lost?.leaf_index);
    const filled = db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`; // no trigger prevents the deletion
      const [entry] = await tx<{ proof_id: string }[]>`
        delete from svc.log_entry where leaf_index = ${leaf} returning proof_id::text`;
      await tx`set local session_replication_role = origin`;
      await tx`set local role svc_worker`;
      const again = { leaf_index: String(leaf), proof_id: `'${entry?.proof_id ?? ''}'` };
      await tx.unsafe(insertOf({ ...PROOF, ...again }));
    });
    await expect(filled).rejects.toThrow(`leaf ${leaf} is behind the head`);
  });

  it('reject a log head that shrinks or does not grow', async () => {
    for (const less of ['tree_size - 1', 'tree_size']) {
      const set = db.sql.unsafe(`update svc.log_head set tree_size = ${less}`);
      await expect(set).rejects.toThrow(/only grow/);
    }
    await expect(db.sql`insert into svc.log_head values (false, 0)`).rejects.toThrow(/check/);
    await expect(db.sql`insert into svc.log_head values (true, 0)`).rejects.toThrow(/unique/);
  });

  it('reject rows that violate the format that verifier and publisher rely on', async () => {
    const refused = (statement: string) =>
      expect(db.sql.unsafe(statement), statement).rejects.toThrow(/check constraint/);
    const isWrong = (row: Record<string, string>, change: Record<string, string>) =>
      refused(insertOf({ ...row, ...change }));
    for (const name of Object.keys(OF_PROOF)) await isWrong(PROOF, { [name]: 'null' });
    for (const hash of ['aep_hash', 'proof_record_hash']) await isWrong(PROOF, { [hash]: `'x'` });
    await isWrong(PROOF, { lane: '3' });
    await isWrong(PROOF, { effect: `'MAYBE'` });
    await isWrong(PROOF, { body: `'x'` });
    await isWrong(PROOF, { revokes: 'gen_random_uuid()' });
    for (const other of [STATUS, KEY]) {
      await isWrong(other, { body: 'null' });
      for (const [name, value] of Object.entries({ ...OF_PROOF, ...PAYLOAD })) {
        await isWrong(other, { [name]: value });
      }
    }
    await isWrong(STATUS, { revokes: 'null' });
    await isWrong(KEY, { revokes: 'gen_random_uuid()' });
    await isWrong(KEY, { kind: '7' });
    await refused(`insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref)
      values ('k', 1, sha256('x'), '{}', '')`);
    await refused(`insert into svc.tile values (7, 1, 'x')`);
  });

  it('allow log entries with the required columns', async () => {
    const accepted = { ...PROOF, proof_id: '(select proof_id from svc.intake)' };
    for (const row of [accepted, { ...accepted, ...PAYLOAD }, STATUS, KEY]) {
      const undone = db.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        await tx`delete from svc.log_entry`; // so that the proof is new
        await tx`set local session_replication_role = origin`;
        await tx.unsafe(insertOf(row));
        throw new Error('inserted');
      });
      await expect(undone).rejects.toThrow(/^inserted$/);
    }
  });
});
