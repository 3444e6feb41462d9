import { afterAll, beforeAll, expect, it } from 'vitest';
import { readUpkeep } from '#sql/ops/queries';
import { Clusters, databaseOf, skipsClusters, withoutClusters } from '../fixtures/clusters.js';
import type { TestDatabase } from '../fixtures/database.js';
import { migrated } from '../fixtures/restored-service.js';

/** The limit of the alert SvcReplicationLag. */
const ALERT_BYTES = 1e9;

let clusters: Clusters;
let db: TestDatabase;

beforeAll(async () => {
  if (skipsClusters) return;
  clusters = await Clusters.open();
  const cluster = await clusters.create('primary');
  await cluster.start({
    max_slot_wal_keep_size: '1MB',
    max_wal_size: '32MB',
    min_wal_size: '32MB',
  });
  await migrated(cluster);
  db = databaseOf(cluster);
}, 60_000);
afterAll(async () => {
  await db?.close();
  await clusters?.close();
});

it.skipIf(skipsClusters)(
  `replication lag > counts a slot whose WAL PostgreSQL has removed${withoutClusters}`,
  async () => {
    const lag = async () => (await readUpkeep(db.as('svc_publisher', 1))).replicationBytes;
    await db.sql`select pg_create_physical_replication_slot('reserved_later')`;
    expect(await lag()).toBe(0);
    await db.sql`select pg_create_physical_replication_slot('standby', true)`;
    for (let segment = 0; segment < 4; segment += 1) {
      await db.sql`select pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()`;
    }
    await db.sql`checkpoint`;
    expect(
      await db.sql`select wal_status from pg_replication_slots where slot_name = 'standby'`,
    ).toEqual([{ wal_status: 'lost' }]);
    expect(await lag()).toBeGreaterThan(ALERT_BYTES);
  },
);
