import { beforeAll, describe, expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { putFixture } from '#sql/tenants/administration';
import { openRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

const LOG_TABLES = ['log_entry', 'proof', 'checkpoint', 'verdict', 'tile', 'log_head'];

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
    ['proof', 'aep = null'],
    ['checkpoint', `note = 'x'`],
    ['verdict', `outcome = 'pass'`],
    ['policy_set', `files = '{}'`],
    ['policy_activation', 'active_from = now()'],
    ['policy_input', `input = ''`],
    ['fixture', `content = ''`],
  ])('%s rejects updates and deletes, even by its owner', async (table, change) => {
    await expect(db.sql.unsafe(`update svc.${table} set ${change}`)).rejects.toThrow(/append-only/);
    await expect(db.sql.unsafe(`delete from svc.${table}`)).rejects.toThrow(/append-only/);
  });

  it.each(LOG_TABLES)('reject TRUNCATE of %s, even by its owner', async (table) => {
    const emptied = db.sql.unsafe(`truncate svc.${table} cascade`);
    await expect(emptied).rejects.toThrow(`svc.${table} is append-only`);
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
    await expect(db.sql`delete from svc.tile`).rejects.toThrow(/append-only/);
  });

  it('reject leaves at or beyond the log head, and a head beyond the leaves', async () => {
    const behind = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      values (1, 3, now(), '\\x01')`;
    await expect(behind).rejects.toThrow(/behind the head/);
    await expect(db.sql`update svc.log_head set tree_size = 900`).rejects.toThrow(/no 900 leaves/);
  });

  it('let the worker role append only proofs, and the admin role only other kinds', async () => {
    const status = db.as('svc_worker')`insert into svc.log_entry (leaf_index, kind, at, body)
      values (2, 3, now(), '\\x01')`;
    await expect(status).rejects.toThrow(/may not append entries of kind 3/);
    const proof = db.as('svc_admin')`
      insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
      values (2, 1, gen_random_uuid(), now(), ${Buffer.alloc(32)}, ${Buffer.alloc(32)})`;
    await expect(proof).rejects.toThrow(/may not append entries of kind 1/);
  });

  it('require an intake row for pending and proved rows, and a tenant for each intake', async () => {
    const stranger = '0190aaaa-0000-7000-8000-000000000000';
    const points = (statement: string) =>
      expect(db.sql.unsafe(statement), statement).rejects.toMatchObject({ code: '23503' });
    await points(`insert into svc.proof (proof_id, leaf_index, effect, environment, key_id, tenant_no, lane)
      select id, 900, 'ADMIT', 'sandbox', 'k', 1, 1
      from (select proof_id as id from svc.intake union select '${stranger}') as ids
      where id not in (select proof_id from svc.proof)`);
    await points(`insert into svc.intake_pending values ('${stranger}', now())`);
    const copy = (tenant: string, digest: string) => `
      insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
        accepted_at, salt, policy_digest, validity)
      select '${stranger}', ${tenant}, lane, environment, request, sha256('other'), accepted_at, salt,
        ${digest}, validity from svc.intake limit 1`;
    await points(copy('tenant_no + 99', 'policy_digest'));
    await points(copy('tenant_no', `sha256('x')`));
    for (const table of ['intake', 'tenant']) {
      await expect(db.sql.unsafe(`delete from svc.${table}`)).rejects.toThrow(/append-only/);
      const emptied = db.sql.unsafe(`truncate svc.${table} cascade`);
      await expect(emptied).rejects.toThrow(/append-only/);
    }
    for (const column of ['proof_id', 'tenant_no', 'policy_digest']) {
      const changed = db.sql.unsafe(`update svc.intake set ${column} = ${column}`);
      await expect(changed).rejects.toThrow(/append-only/);
    }
    await expect(db.sql`update svc.tenant set tenant_no = default`).rejects.toThrow(/append-only/);
  });

  it('check every leaf that a statement inserts, not only the first', async () => {
    const [head] = await db.sql<{ size: number }[]>`select tree_size as size from svc.log_head`;
    const size = Number(head?.size);
    const both = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      select n, 3, now(), '\\x01' from unnest(${[size + 5, size - 1, size + 6]}::bigint[]) as n`;
    await expect(both).rejects.toThrow(`leaf ${size - 1} is behind the head`);
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
      await tx`
        insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
        values (${leaf}, 1, ${entry?.proof_id ?? ''}::uuid, now(), ${Buffer.alloc(32)}, ${Buffer.alloc(32)})`;
    });
    await expect(filled).rejects.toThrow(`leaf ${leaf} is behind the head`);
  });

  it('reject a log head that shrinks or does not grow', async () => {
    for (const less of ['tree_size - 1', 'tree_size']) {
      const set = db.sql.unsafe(`update svc.log_head set tree_size = ${less}`);
      await expect(set).rejects.toThrow(/only grow/);
    }
    await expect(db.sql`delete from svc.log_head`).rejects.toThrow(/append-only/);
    await expect(db.sql`insert into svc.log_head values (false, 0)`).rejects.toThrow(/check/);
    await expect(db.sql`insert into svc.log_head values (true, 0)`).rejects.toThrow(/unique/);
  });

  it('reject rows that violate the format that verifier and publisher rely on', async () => {
    const refused = (statement: string) =>
      expect(db.sql.unsafe(statement), statement).rejects.toThrow(/check constraint/);
    const entry = (values: string) =>
      refused(`insert into svc.log_entry
        (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash, body) values (${values})`);
    const [id, hash] = ['gen_random_uuid()', `sha256('x')`];
    await entry(`900, 1, null, now(), ${hash}, ${hash}, null`);
    await entry(`900, 1, ${id}, now(), '\\x00', ${hash}, null`);
    await entry(`900, 1, ${id}, now(), ${hash}, '\\x00', null`);
    await entry(`900, 1, ${id}, now(), ${hash}, ${hash}, 'x'`);
    await entry(`900, 2, null, now(), null, null, 'x'`);
    await entry(`900, 2, ${id}, now(), null, null, null`);
    await entry(`900, 3, null, now(), null, null, null`);
    await entry(`900, 4, null, now(), null, null, 'x'`);
    await refused(`insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref)
      values ('k', 1, ${hash}, '{}', '')`);
    await refused(`insert into svc.tile values (7, 1, 'x')`);
  });
});
