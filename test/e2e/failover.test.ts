import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { acceptIntake } from '#sql/admissions/accept';
import { Link } from '../faults/link.js';
import { adminWith } from '../fixtures/admin.js';
import { Clusters, skipsClusters, withoutClusters, type Cluster } from '../fixtures/clusters.js';
import { executeBody, headersFor, issueKey, startEngine } from '../fixtures/engine.js';
import { migrated, publicStatuses, Service, vkeysOf } from '../fixtures/restored-service.js';
import { testKey } from '../fixtures/snapshot.js';
import { eventually } from '../fixtures/stack.js';

/** A primary fails and a standby is promoted, with real PostgreSQL behind one address. */
describe.skipIf(skipsClusters)(`failover${withoutClusters}`, () => {
  let home: string;
  let directory: string;
  let clusters: Clusters;
  let primary: Cluster;
  let standby: Cluster;
  let address: Link;
  let service: Service;
  const keys = { logKey: testKey(), snapshotKey: testKey() };

  beforeEach(async () => {
    home = mkdtempSync(join(tmpdir(), 'svc-failover-'));
    directory = join(home, 'public');
    clusters = await Clusters.open();
    primary = await clusters.create('primary');
    await primary.start();
    await migrated(primary);
    const conninfo = `host=127.0.0.1 port=${primary.port} user=postgres application_name=standby`;
    await clusters.run('pg_basebackup', '-D', join(clusters.root, 'standby'), '-d', conninfo, '-c', 'fast', '-X', 'stream', '-R'); // prettier-ignore
    standby = await clusters.at('standby');
    await standby.start();
    address = await Link.open(primary.port, 'other');
    service = await Service.on(
      { url: (database = 'svc') => `postgres://postgres@127.0.0.1:${address.port}/${database}` },
      { directory, ...keys },
    );
  }, 120_000);
  afterEach(async () => {
    await service.close();
    await address.close();
    await clusters.close();
    rmSync(home, { recursive: true, force: true });
  });

  async function promote(): Promise<void> {
    const sql = postgres(standby.url('postgres'), { max: 1, onnotice: () => undefined });
    await sql`select pg_promote()`;
    await sql.end();
    address.redirect(standby.port);
  }

  /** Until a commit waits for the standby. */
  async function makeSynchronous(): Promise<void> {
    await service.db.sql.unsafe(`alter system set synchronous_standby_names = 'standby'`);
    await service.db.sql`select pg_reload_conf()`;
    await eventually(
      async () => {
        const rows = await service.db
          .sql`select from pg_stat_replication where sync_state = 'sync'`;
        return rows.length > 0 ? true : null;
      },
      20_000,
      'a synchronous standby',
    );
  }

  it('to a synchronous standby under load loses no acknowledged admission, and every program continues', async () => {
    await makeSynchronous();
    const { registry } = service;
    const engine = await startEngine(registry, { rateLimit: 1_000_000, waitMs: 2_000 });
    const headers = headersFor(await issueKey(registry));
    const acknowledged: string[] = [];
    const refused: number[] = [];
    let firstAfter = Infinity;
    let died = Infinity;
    let stopped = false;
    const client = async (): Promise<void> => {
      while (!stopped) {
        const { status, json } = await engine.call({
          method: 'POST',
          path: '/v1/intents/execute',
          headers,
          body: JSON.stringify(executeBody()),
        });
        if (status === 200) {
          acknowledged.push(String(json['registry_proof_id']));
          const now = performance.now();
          if (now > died) firstAfter = Math.min(firstAfter, now);
        } else refused.push(status);
      }
    };
    const clients = [client(), client(), client(), client()];
    await eventually(() => Promise.resolve(acknowledged.length > 40 || null), 30_000, 'load');
    await service.publish();
    await primary.kill();
    died = performance.now();
    const before = acknowledged.length;
    await promote();
    await eventually(
      () => Promise.resolve(acknowledged.length > before + 40 || null),
      60_000,
      'receipts after the failover',
    );
    stopped = true;
    await Promise.all(clients);
    await engine.close();
    console.info(
      `the first receipt after the failover came after ${Math.round(firstAfter - died)} ms`,
    );
    // Only retryable answers in between: 202 for accepted admissions that are committed later.
    expect(refused.filter((status) => ![202, 503].includes(status))).toEqual([]);
    expect(await service.has(acknowledged)).toEqual(acknowledged);
    expect(await service.publish()).toMatchObject({ outcome: 'published' });
    expect(await publicStatuses(directory, keys, acknowledged)).toEqual([200]);
  }, 120_000);

  it('to a lagging asynchronous standby loses published leaves, on which the publisher stops', async () => {
    const [first] = [await service.admit(10), await service.publish()];
    await eventually(
      async () => {
        const [row] = await service.db.sql<{ level: boolean }[]>`
          select coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) as level
          from pg_stat_replication`;
        return row?.level === true ? true : null;
      },
      20_000,
      'the standby to be level',
    );
    // From here on the standby receives nothing, and receipts are still given.
    await standby.stop();
    const published = await service.admit(7);
    await service.publish();
    const request = service.registry.item();
    const [unpublished = ''] = await service.registry.admitAll([request]);
    await primary.kill();
    await standby.start();
    await promote();

    expect(await service.has([...first, ...published, unpublished])).toEqual(first);
    const { code, message } = await service.stopped();
    expect(code).toBe('database_behind');
    expect(message).toMatch(/11 verified leaves.*covers 18.*log lost/s);
    // Published proofs are known by id; those only acknowledged are unknown here.
    const admin = adminWith({ DATABASE_URL: service.db.urlFor('svc_admin') });
    const { json } = await admin('log', 'lost', directory, '--vkey', vkeysOf(keys).log);
    const { lost } = json as { lost: { proof_id: string }[] };
    expect(lost.map((leaf) => leaf.proof_id)).toEqual(published);
    // The public API keeps its answers until the snapshot expires.
    expect(await publicStatuses(directory, keys, [...first, ...published])).toEqual([200]);
    expect(await publicStatuses(directory, keys, [unpublished])).toEqual([404]);
    // The same request is now a new admission, with its own id.
    const again = { ...request, proofId: service.registry.item().proofId };
    const [outcome] = await acceptIntake(service.registry.engine, [again]);
    expect(outcome).toMatchObject({ outcome: 'accepted', proofId: again.proofId });
  }, 120_000);
});
