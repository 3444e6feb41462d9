import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { assertDatabase, MIGRATIONS } from '#programs/database';
import { connect } from '#runtime/postgres/connect';
import { migrate, requireSchema, SchemaMismatchError } from '#sql/schema/migrate';
import { slownessNow } from '../faults/pace.js';
import { executeBody, headersFor, issueKey, startEngine } from '../fixtures/engine.js';
import { openRegistry } from '../fixtures/registry.js';
import { useDatabase, useMigrations } from '../fixtures/use-registry.js';

const db = useDatabase('test');
const copy = useMigrations('test');

/** The known versions of a release with one more migration. */
const next = () => ({ first: copy.known.first, last: copy.known.last + 1 });

/** Adds migrations of the busiest tables, as a next version could have. */
async function addExpandingMigrations(): Promise<void> {
  await copy.add(
    1,
    `alter table svc.intake add column later_a integer not null default 7;
     alter table svc.log_entry add column later_b text;
     alter table svc.log_entry add column later_c bigint;`,
  );
  await copy.add(
    2,
    `create table svc.later (a integer); grant select, insert on svc.later to svc_engine;
     create index later_at on svc.intake_pending (proof_id);`,
  );
}

/** Sends requests one by one until stopped; records each status and duration. */
function drive(request: () => Promise<number>) {
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
  const stop = (): Promise<void> => {
    stopped = true;
    return running;
  };
  return { statuses, ms, stop };
}

describe('migrate while the old version serves', () => {
  it('fails no request, and delays none while it waits for a lock', async () => {
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
    const driven = [execute, execute, read, read].map(drive);
    await addExpandingMigrations();

    // A long read, such as a report, blocks a migration of its table.
    const reader = await db.sql.reserve();
    await reader.unsafe('begin; select count(*) from svc.log_entry');
    const migrating = migrate(connectedAsOwner(), copy.folder);
    const before = driven.map(({ statuses }) => statuses.length);
    await sleep(4_000);
    const fewest = () =>
      Math.min(...driven.map(({ statuses }, at) => statuses.length - before[at]!));
    await expect.poll(fewest, { timeout: 60_000 }).toBeGreaterThan(5);
    expect(await requireSchema(db.sql, copy.known)).toEqual({ ahead: false });
    await reader.unsafe('commit');
    reader.release();
    expect(await migrating).toHaveLength(2);

    await Promise.all(driven.map(({ stop }) => stop()));
    await engine.close();
    expect(new Set(driven.flatMap(({ statuses }) => statuses))).toEqual(new Set([200]));
    // A request that queues behind the waiting migration would take as long as the read, at least 4 s.
    expect(Math.max(...driven.flatMap(({ ms }) => ms))).toBeLessThan(2_500 * slownessNow());
  }, 120_000);

  it('names the next step when a transaction keeps the lock', async () => {
    await copy.add(1, 'alter table svc.log_entry add column later text;');
    const reader = await db.sql.reserve();
    await reader.unsafe('begin; select count(*) from svc.log_entry');
    await expect(migrate(db.sql, copy.folder, 300)).rejects.toThrow(
      /_later\.sql did not get its locks .* pg_stat_activity/,
    );
    await reader.unsafe('commit');
    reader.release();
    expect(await migrate(db.sql, copy.folder)).toHaveLength(1);
  });

  it('lets the old version start when the migration is additive', async () => {
    await addExpandingMigrations();
    await migrate(db.sql, copy.folder);
    expect(await requireSchema(db.as('svc_engine'), copy.known)).toEqual({ ahead: true });
    await assertDatabase(db.as('svc_engine'), 'engine');
    await assertDatabase(db.as('svc_publisher'), 'publisher');
    // A rollback with Compose runs the old version's `init` again.
    expect(await migrate(db.sql, MIGRATIONS)).toEqual([]);
    // Extra privileges on a known table are still rejected.
    await db.sql`grant delete on svc.tile to svc_engine`;
    await expect(assertDatabase(db.as('svc_engine'), 'engine')).rejects.toThrow(/DELETE tile/);
    await db.sql`revoke delete on svc.tile from svc_engine`;
  });

  it('stops the old version from starting when the migration is breaking', async () => {
    await copy.add(1, '-- The column is gone.\n-- breaking: intake.seed moved\nselect 1;');
    await migrate(db.sql, copy.folder);
    const old = requireSchema(db.as('svc_worker'), copy.known);
    await expect(old).rejects.toThrow(SchemaMismatchError);
    await expect(old).rejects.toThrow(/_later\.sql.*newer/);
    await expect(migrate(db.sql, MIGRATIONS)).rejects.toThrow(SchemaMismatchError);
    expect(await requireSchema(db.as('svc_worker'), next())).toEqual({ ahead: false });
    // A version that knows the breaking migration accepts the additive migrations after it.
    await copy.add(2, 'select 1;');
    await migrate(db.sql, copy.folder);
    expect(await requireSchema(db.as('svc_worker'), next())).toEqual({ ahead: true });
  });

  it('stops the new version from starting before the migration', async () => {
    const tooNew = requireSchema(db.as('svc_verifier'), next());
    await expect(tooNew).rejects.toThrow(SchemaMismatchError);
    await expect(tooNew).rejects.toThrow(/npm run admin -- init/);
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
