import { cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { assertDatabase, MIGRATIONS } from '#programs/database';
import { connect } from '#runtime/postgres/connect';
import { migrate } from '#sql/schema/migrate';
import { requireSchema, SchemaMismatchError } from '#sql/schema/version';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { executeBody, headersFor, issueKey, startEngine } from '../fixtures/engine.js';
import { openRegistry } from '../fixtures/registry.js';

let db: TestDatabase;
let folder: string;
/** How many migrations this version has. */
let known: number;
beforeEach(async () => {
  db = await freshDatabase();
  folder = await mkdtemp(join(tmpdir(), 'svc-migrations-'));
  await cp(MIGRATIONS, folder, { recursive: true });
  known = (await readdir(MIGRATIONS)).length;
});
afterEach(async () => {
  await db.drop();
  await rm(folder, { recursive: true });
});

const add = (places: number, text: string) =>
  writeFile(join(folder, `${String(known + places).padStart(4, '0')}_later.sql`), text);

/** What a next version may do to tables that everything goes through. */
async function addExpandingMigrations(): Promise<void> {
  await add(
    1,
    `alter table svc.intake add column later_a integer not null default 7;
     alter table svc.proof add column later_b text;
     alter table svc.log_entry add column later_c bigint;`,
  );
  await add(
    2,
    `create table svc.later (a integer); grant select, insert on svc.later to svc_engine;
     create index later_at on svc.intake_pending (proof_id);`,
  );
}

/** A request after the other, until told to stop; how each was answered, and after how long. */
function drive(
  request: () => Promise<number>,
): () => Promise<{ statuses: number[]; ms: number[] }> {
  const statuses: number[] = [];
  const ms: number[] = [];
  let stopped = false;
  const running = (async () => {
    while (!stopped) {
      const began = performance.now();
      statuses.push(await request());
      ms.push(performance.now() - began);
    }
  })();
  return async () => {
    stopped = true;
    await running;
    return { statuses, ms };
  };
}

describe('while the old version serves', () => {
  it('a newer one migrates: no request fails, and none waits for whoever keeps a table from it', async () => {
    const registry = await openRegistry(db);
    const engine = await startEngine(registry, { rateLimit: 1_000_000 });
    const headers = headersFor(await issueKey(registry));
    const [first = ''] = await registry.admitAll([registry.item()]);
    const execute = async () =>
      (
        await engine.call({
          method: 'POST',
          path: '/v1/intents/execute',
          headers,
          body: JSON.stringify(executeBody()),
        })
      ).status;
    const read = async () =>
      (await engine.call({ method: 'GET', path: `/v1/proofs/${first}`, headers })).status;
    const stops = [execute, execute, read, read].map(drive);
    await addExpandingMigrations();

    // A report, say: it reads a table for long, and a migration of that table cannot begin.
    const reader = await db.sql.reserve();
    await reader.unsafe('begin; select count(*) from svc.proof');
    const migrating = migrate(connectedAsOwner(), folder);
    await sleep(4_000);
    expect((await db.sql`select from public.svc_migration`).length).toBe(known);
    await reader.unsafe('commit');
    reader.release();
    expect(await migrating).toHaveLength(2);

    const driven = await Promise.all(stops.map((stop) => stop()));
    await engine.close();
    const statuses = driven.flatMap((one) => one.statuses);
    // As many as a machine that is busy answers in four seconds.
    expect(statuses.length).toBeGreaterThan(20);
    expect(new Set(statuses)).toEqual(new Set([200]));
    // Behind a migration that waits for the reader it would be all of its four seconds.
    expect(Math.max(...driven.flatMap((one) => one.ms))).toBeLessThan(2_500);
  }, 60_000);

  it('programs of the old version start again on what the newer one only added to', async () => {
    await addExpandingMigrations();
    await migrate(db.sql, folder);
    expect(await requireSchema(db.as('svc_engine'), known)).toEqual({ ahead: true });
    await assertDatabase(db.as('svc_engine'), 'engine');
    await assertDatabase(db.as('svc_publisher'), 'publisher');
    // More rights to a table that it does know are refused as ever.
    await db.sql`grant delete on svc.tile to svc_engine`;
    await expect(assertDatabase(db.as('svc_engine'), 'engine')).rejects.toThrow(/DELETE tile/);
    await db.sql`revoke delete on svc.tile from svc_engine`;
  });

  it('rights to an unknown table are refused where no later version made it', async () => {
    await db.sql.unsafe('create table svc.odd (a int); grant select on svc.odd to svc_engine');
    await expect(assertDatabase(db.as('svc_engine'), 'engine')).rejects.toThrow(/SELECT odd/);
  });

  it('programs of the old version refuse what says that it breaks them', async () => {
    await add(1, '-- The column is gone.\n-- breaking: intake.salt moved\nselect 1;');
    await migrate(db.sql, folder);
    const old = requireSchema(db.as('svc_worker'), known);
    await expect(old).rejects.toThrow(SchemaMismatchError);
    await expect(old).rejects.toThrow(/_later\.sql.*newer/);
    expect(await requireSchema(db.as('svc_worker'), known + 1)).toEqual({ ahead: false });
    // It is said once; what comes after it is read by those who know it.
    await add(2, 'select 1;');
    await migrate(db.sql, folder);
    expect(await requireSchema(db.as('svc_worker'), known + 1)).toEqual({ ahead: true });
  });

  it('programs of the new version refuse to start before it has migrated', async () => {
    const tooNew = requireSchema(db.as('svc_verifier'), known + 1);
    await expect(tooNew).rejects.toThrow(SchemaMismatchError);
    await expect(tooNew).rejects.toThrow(/run migrate/);
  });
});

describe('a migration that cannot get its locks', () => {
  it('gives up in the end, says what to do, and leaves nothing behind', async () => {
    await addExpandingMigrations();
    const reader = await db.sql.reserve();
    await reader.unsafe('begin; select count(*) from svc.proof');
    const blocked = migrate(connectedAsOwner(), folder, { lockTimeoutMs: 50, patienceMs: 300 });
    await expect(blocked).rejects.toThrow(/pg_stat_activity/);
    await reader.unsafe('commit');
    reader.release();
    expect((await db.sql`select from public.svc_migration`).length).toBe(known);
    expect(await migrate(db.sql, folder)).toHaveLength(2);
  });

  it('is made by the next version on a list of before migrations could be breaking', async () => {
    await db.sql.unsafe(
      'alter table public.svc_migration drop column breaking; revoke select on public.svc_migration from public',
    );
    await expect(requireSchema(db.as('svc_engine'), known)).rejects.toThrow(/run migrate/);
    expect(await migrate(db.sql, folder)).toEqual([]);
    expect(await requireSchema(db.as('svc_engine'), known)).toEqual({ ahead: false });
  });
});

function connectedAsOwner() {
  const pool = connect(db.url, { application: 'migrate', max: 1, statementTimeoutMs: 0 });
  const { drop } = db;
  db.drop = async () => {
    await pool.end({ timeout: 5 });
    await drop();
  };
  return pool;
}
