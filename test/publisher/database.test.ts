import { afterAll, describe, expect, it } from 'vitest';
import { formatVkey, parseVkey } from '#protocol/note';
import { logKeysOf } from '#protocol/state/log-keys';
import type { PublisherContext } from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { nativeSha256 } from '#runtime/crypto/node';
import { holdApprovals } from '#sql/admissions/approvals';
import { transaction } from '#sql/db/transaction';
import { appendLogKeyChange, logStateKeys, signingLock } from '#sql/lifecycle/log-keys';
import { holdLock } from '../fixtures/hold-lock.js';
import { ORIGIN, testKey, type TestKey } from '../fixtures/snapshot.js';
import { SqlSnapshot } from '../fixtures/sql-publisher.js';
import { testFolder } from '../fixtures/test-folder.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** Publishes a registry that the real pipeline fills, in a real Postgres. */

const { db, registry } = useRegistry('file');
const snapshot = new SqlSnapshot(db);
afterAll(() => snapshot.close());

async function admitOne(): Promise<void> {
  await registry.admitAll([registry.item()]);
  await registry.reportAll();
}

describe('publisher on PostgreSQL', () => {
  it("lets one of two publishers lead, and fails over when the leader's connection is cut", async () => {
    await admitOne();
    const elsewhere = await testFolder();
    const one = snapshot.publisher();
    const two = snapshot.publisher({ directory: elsewhere });
    await one.runCycle();
    expect(one.isLeader()).toBe(true);
    expect(await two.runCycle()).toEqual({ outcome: 'standby' });
    // Cuts the connection of the leader, so that the database releases the leader's lock.
    await db.sql`
      select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
      where d.datname = current_database() and locktype = 'advisory' and granted
        and classid = ${0x737663} and objid = 1`;
    await expect.poll(() => two.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await one.runCycle()).toEqual({ outcome: 'standby' });
    await two.close();
    await admitOne();
    expect(await one.runCycle()).toMatchObject({ outcome: 'published' });
    await one.close();
  });

  it('rejects a snapshot entry from a process without the lease', async () => {
    const { opened } = await snapshot.published();
    const sql = db.as('svc_publisher');
    await expect(sqlRegistry(sql, sql).appendSnapshot(opened.snapshot)).rejects.toThrow('lease');
  });
});

it('publisher > does not block an approval, even if the hash of a proof id equals the first bytes of the log key', async () => {
  const proofId = '0'.repeat(32);
  const [{ hash }] = await db.sql<[{ hash: number }]>`
    select hashtext(${proofId}::uuid::text) as hash`;
  const publicKey = Buffer.alloc(32);
  publicKey.writeInt32BE(hash);
  const lock = `select pg_advisory_xact_lock(${signingLock(publicKey).join()})`;
  const release = await holdLock(db.sql, lock);
  await transaction(registry.engine, (tx) => holdApprovals(tx, [proofId]));
  await release();
});

it('publisher > prevents the retirement of its log key during a cycle, so no checkpoint exceeds the bound of the key', async () => {
  const [former, next] = [snapshot.logKey, testKey()];
  const change = (key: TestKey, what: 'activate' | 'retire') => {
    const vkey = parseVkey(formatVkey(nativeSha256, ORIGIN, key.publicKey));
    return appendLogKeyChange(registry.admin, vkey, what);
  };
  const publish = async (logKey: PublisherContext['logKey']) => {
    await admitOne();
    const keys = await logStateKeys(registry.admin, ORIGIN);
    const logged = logKeysOf(nativeSha256, ORIGIN, keys.values());
    const publisher = snapshot.publisher({ logKey, logged });
    const { outcome } = await publisher.runCycle().finally(() => publisher.close());
    expect(outcome).toBe('published');
  };
  await publish(former);
  await change(former, 'activate');
  await change(next, 'activate');
  await publish(former);
  await publish(next);
  // The former publisher leads again, and has read the log when the operator retires its key.
  const retired: Promise<unknown>[] = [];
  const sign = async (text: Uint8Array) => {
    retired.push(change(former, 'retire'));
    await Promise.allSettled(retired);
    return former.sign(text);
  };
  await publish({ ...former, sign });
  await expect(retired[0]).rejects.toThrow('the running publisher signs with this key');
  await publish(next);
  await change(former, 'retire');
  await publish(next);
});
