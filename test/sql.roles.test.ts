import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  assertRole,
  effectivePrivileges,
  GRANTS,
  TooMuchPrivilegeError,
  type Program,
} from '#sql/roles';
import { freshDatabase, type TestDatabase } from './helpers/database.js';

const programs = Object.keys(GRANTS) as Program[];
const LOG_TABLES = ['log_entry', 'proof', 'checkpoint', 'verdict', 'tile', 'log_head'];

describe('database roles', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await freshDatabase();
  });
  afterAll(() => db.drop());

  it.each(programs)('%s has exactly the rights of its row', async (program) => {
    const expected = Object.entries(GRANTS[program]).flatMap(([privilege, tables]) =>
      tables.map((table) => `${privilege} ${table}`),
    );
    expect([...(await effectivePrivileges(db.as(`svc_${program}`)))].sort()).toEqual(
      expected.sort(),
    );
  });

  it.each(programs)('%s starts as its own role and as no other', async (program) => {
    await assertRole(db.as(`svc_${program}`), program);
    await expect(assertRole(db.sql, program)).rejects.toThrow(TooMuchPrivilegeError);
    for (const other of programs.filter((one) => one !== program && one !== 'admin')) {
      await expect(assertRole(db.as('svc_admin'), other)).rejects.toThrow(TooMuchPrivilegeError);
    }
  });

  it('refuses a role that was granted one thing more', async () => {
    await db.sql`grant delete on svc.tile to svc_publisher`;
    const sql = db.as('svc_publisher');
    await expect(assertRole(sql, 'publisher')).rejects.toThrow(/DELETE tile/);
    await db.sql`revoke delete on svc.tile from svc_publisher`;
    await assertRole(sql, 'publisher');
  });

  it.each(programs)('%s cannot UPDATE, DELETE or TRUNCATE the log', async (program) => {
    const sql = db.as(`svc_${program}`);
    for (const table of LOG_TABLES) {
      await expect(sql`delete from svc.${sql(table)}`).rejects.toThrow(/permission denied/);
      await expect(sql`truncate svc.${sql(table)}`).rejects.toThrow(/permission denied/);
    }
    for (const [table, column] of [
      ['log_entry', 'leaf_index'],
      ['proof', 'aep'],
      ['checkpoint', 'note'],
      ['verdict', 'outcome'],
    ] as const) {
      await expect(
        sql`update svc.${sql(table)} set ${sql(column)} = ${sql(column)}`,
      ).rejects.toThrow(/permission denied/);
    }
  });

  it('lets nobody but the verifier write verdicts, and the publisher see no payload', async () => {
    for (const program of programs.filter((one) => one !== 'verifier')) {
      const sql = db.as(`svc_${program}`);
      await expect(sql`
        insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
        values (false, 0, 0, 1, ${Buffer.alloc(32)}, 'pass', '[]')`).rejects.toThrow(
        /permission denied/,
      );
    }
    await expect(db.as('svc_publisher')`select aep from svc.proof`).rejects.toThrow(
      /permission denied/,
    );
    await expect(db.as('svc_publisher')`select request from svc.intake`).rejects.toThrow(
      /permission denied/,
    );
  });
});

describe('append-only tables', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await freshDatabase();
    await db.sql`insert into svc.tile values (0, 0, ${Buffer.alloc(64, 1)})`;
    await db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      values (0, 3, now(), '\\x00'), (1, 3, now(), '\\x00')`;
    await db.sql`insert into svc.checkpoint (tree_size, root, note) values (1, ${Buffer.alloc(32)}, '')`;
    await db.sql`update svc.log_head set tree_size = 2`;
  });
  afterAll(() => db.drop());

  // Even their owner meets the triggers; whoever takes those out is a superuser, and the verifier
  // is there for that.
  it.each(['log_entry', 'checkpoint'])('%s refuses its owner', async (table) => {
    await expect(db.sql`delete from svc.${db.sql(table)}`).rejects.toThrow(/append-only/);
    await expect(db.sql`truncate svc.${db.sql(table)}`).rejects.toThrow(/append-only/);
  });

  it('refuses an update of a log entry and of a checkpoint', async () => {
    await expect(db.sql`update svc.log_entry set kind = 3`).rejects.toThrow(/append-only/);
    await expect(db.sql`update svc.checkpoint set note = 'x'`).rejects.toThrow(/append-only/);
  });

  it('lets a tile be extended and nothing else', async () => {
    const set = (hashes: Buffer) => db.sql`update svc.tile set hashes = ${hashes}`;
    await expect(set(Buffer.alloc(32, 1))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(64, 2))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(96, 2))).rejects.toThrow(/extended/);
    await set(Buffer.concat([Buffer.alloc(64, 1), Buffer.alloc(32, 2)]));
    await expect(db.sql`delete from svc.tile`).rejects.toThrow(/append-only/);
  });

  it('lets nobody append behind the head, or move the head beyond the leaves', async () => {
    const behind = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      values (1, 3, now(), '\\x01')`;
    await expect(behind).rejects.toThrow(/behind the head/);
    await expect(db.sql`update svc.log_head set tree_size = 900`).rejects.toThrow(/no 900 leaves/);
  });

  it('lets a worker append proofs only, and admin everything else', async () => {
    const status = db.as('svc_worker')`insert into svc.log_entry (leaf_index, kind, at, body)
      values (2, 3, now(), '\\x01')`;
    await expect(status).rejects.toThrow(/may not append entries of kind 3/);
    const proof = db.as('svc_admin')`
      insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
      values (2, 1, gen_random_uuid(), now(), ${Buffer.alloc(32)}, ${Buffer.alloc(32)})`;
    await expect(proof).rejects.toThrow(/may not append entries of kind 1/);
  });

  it('never lets the log shrink', async () => {
    await expect(db.sql`update svc.log_head set tree_size = 1`).rejects.toThrow(/only grow/);
    await expect(db.sql`delete from svc.log_head`).rejects.toThrow(/append-only/);
  });
});
