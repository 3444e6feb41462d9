import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatVkey } from '#protocol/note';
import { openReplica } from '#programs/replica';
import { SnapshotDirectory } from '#publisher/store/directory';
import type { Publisher } from '#publisher/publisher';
import {
  type RegistryView,
  sqlRegistry,
  ReplicaUnusableError,
  sqlReplica,
} from '#publisher/registry/sql-registry';
import { FatalPublishError } from '#publisher/errors';
import { pinKeys } from '#protocol/snapshot/trust';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { connect, type Sql } from '#runtime/postgres/connect';
import { freshDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { replicatedDatabase, type ReplicatedDatabase } from '../fixtures/replicated.js';
import { ORIGIN, SNAPSHOT_NAME } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';

/** A publisher with a real standby that lags, disconnects, or belongs to another cluster. */

let db: ReplicatedDatabase;
let registry: TestRegistry;
let primary: Sql;
let replica: Sql;
const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
const keys = mkdtempSync(join(tmpdir(), 'svc-keys-'));
const logKey = createSigningKey(join(keys, 'log.pem'));
const snapshotKey = createSigningKey(join(keys, 'snapshot.pem'));
const publishers: Publisher[] = [];
const pools: Sql[] = [];
const snapshot = new SnapshotDirectory(directory, {
  log: pinKeys(nativeSha256, [formatVkey(nativeSha256, ORIGIN, logKey.publicKey)]),
  snapshot: pinKeys(nativeSha256, [formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey)]),
});

function poolAt(url: string): Sql {
  const pool = connect(url, { application: 'test', max: 2 });
  pools.push(pool);
  return pool;
}

beforeAll(async () => {
  db = await replicatedDatabase();
  registry = await openRegistry(db.primary);
  primary = poolAt(db.primary.urlFor('svc_publisher'));
  replica = poolAt(db.standbyUrlFor('svc_publisher'));
});
afterAll(async () => {
  for (const publisher of publishers) await publisher.close();
  for (const pool of pools) await pool.end({ timeout: 1 });
  rmSync(directory, { recursive: true });
  rmSync(keys, { recursive: true });
  await db.close();
});

/** Records the names of the registry's queries. */
function asked(view: RegistryView): { view: RegistryView; names: Set<string> } {
  const names = new Set<string>();
  const noted = new Proxy(view, {
    get: (target, name: keyof RegistryView) => {
      names.add(name);
      return target[name];
    },
  });
  return { view: noted, names };
}

const own = { directory, logKey, snapshotKey };

async function publisherWith(
  view: RegistryView = sqlRegistry(primary),
  snapshotTtlMs = 60_000,
): Promise<Publisher> {
  for (const before of publishers.splice(0)) await before.close();
  const reads = sqlReplica(primary, replica);
  const publisher = sqlPublisher(primary, {
    ...own,
    registry: view,
    replica: reads,
    snapshotTtlMs,
  });
  publishers.push(publisher);
  return publisher;
}

/** A publisher that reads everything from the primary. */
async function publisherWithout(): Promise<Publisher> {
  for (const before of publishers.splice(0)) await before.close();
  const publisher = sqlPublisher(primary, own);
  publishers.push(publisher);
  return publisher;
}

const admit = (count: number): Promise<string[]> =>
  registry.admitAll(Array.from({ length: count }, () => registry.item()));

const revoke = (proofId: string): Promise<unknown> => registry.revoke(proofId);

const manifest = async () => (await snapshot.manifest())!.opened;

describe('publisher with a replica', () => {
  it('reads everything from the replica except checkpoints, key entries and log retirement', async () => {
    await admit(300);
    await registry.verifyAll();
    await db.caughtUp();
    const { view, names } = asked(sqlRegistry(primary));
    const publisher = await publisherWith(view);
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 300 });
    await admit(20);
    await registry.verifyAll();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 20 });
    expect([...names].sort()).toEqual(
      ['hasEnded', 'insertCheckpoint', 'keyEntries', 'latestCheckpoint', 'tile', 'verifiedPrefix'],
    ); // prettier-ignore
  });

  it('shortens validity by the lag of the replica', async () => {
    const [id] = await admit(1);
    await registry.verifyAll();
    await db.caughtUp();
    const publisher = await publisherWith(undefined, 3_000);
    await publisher.runCycle();
    await db.pause();
    const before = await manifest();
    await revoke(id!);
    await admit(5);
    await registry.verifyAll(); // includes an expiry scan
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 0, treeSize: before.manifest.tree_size }); // prettier-ignore
    const meanwhile = await manifest();
    expect(meanwhile.manifest.generation).toBeGreaterThan(before.manifest.generation);
    // The end of validity is unchanged: the primary's newer expiry scan does not count.
    expect(meanwhile.validUntil).toBe(before.validUntil);
    await sleep(Math.max(0, before.validUntil - Date.now()));
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'verifier_silent' });
    await db.resume();
    await registry.verifyAll();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 5, changedRecords: 1 });
  });

  it('waits when the replica lags behind the published snapshot', async () => {
    await db.pause();
    await admit(2);
    await registry.verifyAll();
    expect(await (await publisherWithout()).runCycle()).toMatchObject({ newProofs: 2 });
    const published = (await manifest()).manifest.generation;
    const publisher = await publisherWith();
    await expect(publisher.runCycle()).rejects.toThrow(ReplicaUnusableError);
    await expect(publisher.runCycle()).rejects.toThrow('has not replayed all published data');
    expect((await manifest()).manifest.generation).toBe(published);
    await db.resume();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
  });

  it('stops when the primary was rolled back but the replica was not', async () => {
    await admit(2);
    await registry.verifyAll();
    await db.caughtUp();
    const publisher = await publisherWith();
    await publisher.runCycle();
    await db.pause();
    const lost = (restore: boolean) =>
      db.primary.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        if (restore) await tx`insert into svc.verdict overriding system value select * from kept`;
        else {
          await tx`drop table if exists kept`;
          await tx`create table kept as select * from svc.verdict
            where frontier order by last_index desc limit 1`;
          await tx`delete from svc.verdict v using kept where v.verdict_id = kept.verdict_id`;
        }
      });
    await lost(false);
    const tick = publisher.runCycle();
    await expect(tick).rejects.toThrow(FatalPublishError);
    await expect(tick).rejects.toMatchObject({ code: 'database_behind' });
    await lost(true);
    await db.resume();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
  });

  it('signs only a tree that the primary also has', async () => {
    await admit(2);
    await registry.verifyAll();
    await db.caughtUp();
    const stale = await admit(1);
    await registry.verifyAll();
    const other = sqlRegistry(primary);
    // A replica with another leaf in place of the last one.
    const tampered: RegistryView = {
      ...other,
      verifiedPrefix: async () => {
        const found = (await other.verifiedPrefix())!;
        return { ...found, root: nativeSha256(found.root) };
      },
    };
    for (const before of publishers.splice(0)) await before.close();
    const publisher = sqlPublisher(primary, {
      ...own,
      replica: { reading: (work) => work(tampered) },
    });
    publishers.push(publisher);
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', newProofs: 3 });
    expect(stale).toHaveLength(1);
  });
});

describe('DATABASE_READ_URL', () => {
  const opening = (url: string) => {
    const said: string[] = [];
    const log = { warn: (text: string) => said.push(text) };
    const closers: (() => unknown)[] = [];
    const opened = openReplica(url, primary, {
      log: log as never,
      onStop: (close) => closers.push(close),
    });
    return opened
      .then(() => said)
      .finally(async () => {
        for (const close of closers) await close();
      });
  };

  it('is rejected when it names another database cluster', async () => {
    const other = await freshDatabase();
    await expect(opening(other.urlFor('svc_publisher'))).rejects.toThrow(
      'DATABASE_READ_URL does not replicate the database in DATABASE_URL',
    );
    await other.drop();
  });

  it('is rejected when its role is not the publisher’s', async () => {
    await expect(opening(db.standbyUrlFor('svc_engine'))).rejects.toThrow(
      'DATABASE_READ_URL is not usable: the database role svc_engine',
    );
  });

  it('logs a warning when it names the primary or a standby that may cancel long queries', async () => {
    expect(await opening(db.primary.urlFor('svc_publisher'))).toEqual([
      expect.stringContaining('names the primary'),
    ]);
    expect(await opening(db.standbyUrlFor('svc_publisher'))).toEqual([
      expect.stringContaining('hot_standby_feedback'),
    ]);
  });

  it('makes the program publish from the replica', async () => {
    const run = (url: string, until: string): Promise<string> =>
      new Promise((resolve) => {
        const child = spawn(process.execPath, [join(packageRoot, 'dist/programs/publisher.js')], {
          env: {
            DATABASE_URL: db.primary.urlFor('svc_publisher'),
            DATABASE_READ_URL: url,
            LOG_KEY_FILE: join(keys, 'log.pem'),
            SNAPSHOT_KEY_FILE: join(keys, 'snapshot.pem'),
            LOG_ORIGIN: ORIGIN,
            SNAPSHOT_DIR: directory,
          },
        });
        let said = '';
        const hear = (text: Buffer): void => {
          said += text.toString();
          if (said.includes(until)) child.kill('SIGTERM');
        };
        child.stdout.on('data', hear);
        child.stderr.on('data', hear);
        child.once('close', (code) => resolve(`${said} exit ${code}`));
      });
    for (const before of publishers.splice(0)) await before.close();
    const before = (await manifest()).manifest;
    await admit(2);
    await registry.verifyAll();
    await db.caughtUp();
    const output = await run(db.standbyUrlFor('svc_publisher'), 'snapshot published');
    expect(output).toMatch(/exit 0$/);
    expect((await manifest()).manifest.proofs).toBe(before.proofs + 2);
  });

  it('is rejected once its standby is promoted', async () => {
    const publisher = await publisherWith();
    await db.standby`select pg_promote()`;
    await expect(publisher.runCycle()).rejects.toThrow('was promoted');
    await expect(opening(db.standbyUrlFor('svc_publisher'))).rejects.toThrow('was promoted');
  });
});
