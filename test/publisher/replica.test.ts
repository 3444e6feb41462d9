import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engineReadiness } from '#api/engine/http/health';
import { utf8 } from '#protocol/bytes';
import { formatVkey } from '#protocol/note';
import { openReplica } from '#programs/replica';
import type { Publisher, PublisherContext } from '#publisher/publisher';
import {
  type RegistryView,
  type Replica,
  sqlRegistry,
  ReplicaUnusableError,
  sqlReplica,
} from '#publisher/registry/sql-registry';
import { FatalPublishError } from '#publisher/errors';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { connect, type Sql } from '#runtime/postgres/connect';
import { DatabaseUnavailableError } from '#sql/db/errors';
import { createShareToken, revokeShareToken } from '#sql/lifecycle/share-tokens';
import { startAdmitWorker } from '#workers/admit/worker';
import { verifierHeartbeats, verifierReadiness } from '#workers/verify/context';
import { freshDatabase, withoutTriggers } from '../fixtures/database.js';
import { withFlippedBit } from '../fixtures/leaves.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { replicatedDatabase, type ReplicatedDatabase } from '../fixtures/replicated.js';
import { startProgram } from '../fixtures/program.js';
import { readPublished } from '../fixtures/published.js';
import { ORIGIN } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';
import { testFolder } from '../fixtures/test-folder.js';

/** A publisher with a real standby that lags, disconnects, or belongs to another cluster. */

type EngineQueue = Parameters<typeof engineReadiness>[0]['queue'];

let db: ReplicatedDatabase;
let registry: TestRegistry;
let primary: Sql;
let replica: Replica;
let publisher: Publisher | null = null;
const directory = await testFolder();
const keys = await testFolder();
const logKey = createSigningKey(join(keys, 'log.pem'));
const pools: Sql[] = [];
const logVkey = formatVkey(nativeSha256, ORIGIN, logKey.publicKey);
const snapshot = () => readPublished({ directory, logVkey });

function poolAt(url: string): Sql {
  const pool = connect(url, { application: 'test', max: 1 });
  pools.push(pool);
  return pool;
}

beforeAll(async () => {
  db = await replicatedDatabase();
  registry = await openRegistry(db.primary);
  primary = poolAt(db.primary.urlFor('svc_publisher'));
  replica = sqlReplica(primary, poolAt(db.standbyUrlFor('svc_publisher')));
});
afterAll(async () => {
  await publisher?.close();
  for (const pool of pools) await pool.end({ timeout: 1 });
  await db.close();
});

/**
 * Returns a publisher that reads `replica` if given, otherwise only the primary. Closes the
 * previous publisher.
 */
async function openPublisher(overrides: Partial<PublisherContext> = {}): Promise<Publisher> {
  await publisher?.close();
  return (publisher = sqlPublisher(primary, { directory, logKey, ...overrides }));
}

const admit = (count: number): Promise<string[]> =>
  registry.admitAll(Array.from({ length: count }, () => registry.item()));

describe('publisher with a replica', () => {
  it('shortens validity by the lag of the replica', async () => {
    const [id] = await admit(1);
    await registry.reportAll();
    await db.caughtUp();
    const publisher = await openPublisher({ replica, snapshotTtlMs: 4_000 });
    await publisher.runCycle();
    await db.caughtUp();
    await db.pause();
    const before = (await snapshot()).opened;
    await registry.revoke(id!);
    await admit(5);
    await registry.reportAll();
    // The cycle does not use the newer verdict entry in the primary.
    expect(await publisher.runCycle()).toEqual({ outcome: 'unchanged', generation: before.index });
    await sleep(Math.max(0, before.validUntil - Date.now()));
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'verifier_silent' });
    await db.resume();
    await admit(1);
    await registry.reportAll();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    expect((await snapshot()).status(id!)).toBe('REVOKED');
  });

  it('waits when the replica lags behind the published snapshot', async () => {
    await db.pause();
    await admit(2);
    await registry.reportAll();
    expect(await (await openPublisher()).runCycle()).toMatchObject({ outcome: 'published' });
    const published = (await snapshot()).opened.index;
    const publisher = await openPublisher({ replica });
    await expect(publisher.runCycle()).rejects.toThrow(ReplicaUnusableError);
    await expect(publisher.runCycle()).rejects.toThrow('has not replayed all published data');
    expect((await snapshot()).opened.index).toBe(published);
    await db.resume();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
  });

  it('stops when the primary was rolled back but the replica was not', async () => {
    await admit(2);
    await registry.reportAll();
    await db.caughtUp();
    const publisher = await openPublisher({ replica });
    await publisher.runCycle();
    await db.caughtUp();
    await db.pause();
    const shrink = (by: number) =>
      withoutTriggers(
        db.primary,
        (tx) => tx`update svc.log_head set tree_size = tree_size - ${by}`,
      );
    await shrink(1);
    const tick = publisher.runCycle();
    await expect(tick).rejects.toThrow(FatalPublishError);
    await expect(tick).rejects.toMatchObject({ code: 'database_behind' });
    await shrink(-1);
    await db.resume();
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
  });

  it('stops when the primary and the replica lack a published change of share tokens', async () => {
    const [proofId] = await admit(1);
    await registry.reportAll();
    const token = { tokenHash: randomBytes(32), keyNo: 1, expiresAt: null };
    const target = { artifactKind: 'proof', proofId: proofId! } as const;
    await createShareToken(registry.engine, registry.tenantNo, { ...token, target });
    await db.caughtUp();
    const publisher = await openPublisher({ replica });
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', shareChanges: 1 });
    await withoutTriggers(db.primary, 'delete from svc.grant_change');
    await db.caughtUp();
    await expect(publisher.runCycle()).rejects.toMatchObject({ code: 'changes_behind' });
    await withoutTriggers(
      db.primary,
      (tx) =>
        tx`insert into svc.grant_change (change_no, token_hash) values (1, ${token.tokenHash})`,
    );
    await db.caughtUp();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
  });

  it('publishes no share token that only the replica has, after a failover to another standby', async () => {
    const [proofId] = await admit(1);
    await registry.reportAll();
    const hashOf = (token: string): Uint8Array => nativeSha256(utf8(token));
    const create = (token: string) =>
      createShareToken(registry.engine, registry.tenantNo, {
        tokenHash: hashOf(token),
        keyNo: 1,
        expiresAt: null,
        target: { artifactKind: 'proof', proofId: proofId! },
      });
    await create('revoked');
    // Each cycle reads the last published change again, which therefore must not be the change of the revoked token.
    await create('kept');
    await db.caughtUp();
    const publisher = await openPublisher({ replica });
    await publisher.runCycle();
    expect((await snapshot()).share('revoked')).not.toBeNull();
    await create('lost');
    await db.caughtUp();
    await db.pause();
    const lost = hashOf('lost');
    await withoutTriggers(db.primary, async (tx) => {
      await tx`delete from svc.share_token where token_hash = ${lost}`;
      await tx`delete from svc.grant_change where token_hash = ${lost}`;
      await tx`update svc.grant_head set change_no = change_no - 1`;
    });
    const revoked = { tokenHash: hashOf('revoked'), keyNo: 1 };
    await revokeShareToken(registry.engine, registry.tenantNo, revoked);
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', shareChanges: 1 });
    const published = await snapshot();
    expect(['revoked', 'lost'].map((token) => published.share(token))).toEqual([null, null]);
    await db.resume();
    await db.caughtUp();
  });

  it('signs the tree of the primary although the last leaf of the replica differs', async () => {
    const [id] = await admit(2);
    await registry.reportAll();
    const other = sqlRegistry(primary, primary);
    // A replica whose last leaf differs.
    const tampered: RegistryView = {
      ...other,
      tile: async (level, index) => {
        const hashes = await other.tile(level, index);
        const size = await other.treeSize();
        if (level > 0 || index !== Math.floor((size - 1) / 256)) return hashes;
        return withFlippedBit(hashes!, 8 * 32 * ((size - 1) % 256));
      },
    };
    const replica: Replica = (work) => work(tampered);
    expect(await (await openPublisher({ replica })).runCycle()).toMatchObject({
      outcome: 'published',
    });
    expect((await snapshot()).status(id!)).toBe('VALID');
  });
});

describe('DATABASE_URL that leads to a standby', () => {
  it('makes a publisher wait, although the standby lacks published leaves', async () => {
    await db.caughtUp();
    await db.pause();
    await admit(2);
    await registry.reportAll();
    await (await openPublisher()).runCycle();
    await publisher?.close();
    const standby = poolAt(db.standbyUrlFor('svc_publisher'));
    const redirected = sqlPublisher(standby, { directory, logKey });
    await expect(redirected.runCycle()).rejects.toThrow(DatabaseUnavailableError);
    await redirected.close();
    await db.resume();
    await db.caughtUp();
  });

  it('makes engine, worker and verifier unready, because a standby stores nothing', async () => {
    const ofEngine = (sql: Sql) =>
      engineReadiness({ sql, queue: { ping: () => Promise.resolve() } as EngineQueue })();
    const ofWorker = async (sql: Sql) => {
      const queue = { databaseUrl: db.primary.urlFor('svc_worker'), redisUrl: null };
      const worker = startAdmitWorker({ ...registry.admit, sql }, queue);
      return worker.readiness().finally(() => worker.close());
    };
    const ofVerifier = (sql: Sql) => verifierReadiness(sql, verifierHeartbeats())();
    for (const [readiness, role] of [
      [ofEngine, 'svc_engine'],
      [ofWorker, 'svc_worker'],
      [ofVerifier, 'svc_verifier'],
    ] as const) {
      // prettier-ignore
      const onPrimary = await readiness(poolAt(db.primary.urlFor(role)));
      expect(onPrimary.details).toMatchObject({ dependencies: { database: 'up' } });
      const onStandby = await readiness(poolAt(db.standbyUrlFor(role)));
      expect(onStandby).toMatchObject({
        ready: false,
        details: { dependencies: { database: 'down' } },
      });
    }
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

  it('makes the program publish from the replica', async () => {
    await publisher?.close();
    const [id] = await admit(2);
    await registry.reportAll();
    await db.caughtUp();
    const program = await startProgram('publisher', {
      DATABASE_URL: db.primary.urlFor('svc_publisher'),
      DATABASE_READ_URL: db.standbyUrlFor('svc_publisher'),
      LOG_KEY_FILE: join(keys, 'log.pem'),
      LOG_ORIGIN: ORIGIN,
      SNAPSHOT_DIR: directory,
    });
    await expect.poll(async () => (await snapshot()).status(id!)).toBe('VALID');
    expect(await program.stop()).toBe(0);
  });

  it('is rejected once its standby is promoted', async () => {
    const publisher = await openPublisher({ replica });
    await db.standby`select pg_promote()`;
    await expect(publisher.runCycle()).rejects.toThrow('was promoted');
    await expect(opening(db.standbyUrlFor('svc_publisher'))).rejects.toThrow('was promoted');
  });
});
