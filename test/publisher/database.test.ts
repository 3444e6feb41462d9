import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { formatVkey, parseVkey } from '#protocol/note';
import { logKeysOf } from '#protocol/state/log-keys';
import type { PublisherContext } from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { nativeSha256 } from '#runtime/crypto/node';
import { holdApprovals } from '#sql/admissions/approvals';
import { transaction } from '#sql/db/transaction';
import { appendLogKeyChange, logStateKeys, signingLock } from '#sql/lifecycle/log-keys';
import { createPackage } from '#sql/lifecycle/packages';
import { createShareToken, type ShareTarget } from '#sql/lifecycle/share-tokens';
import { databaseTime } from '#sql/log/verdicts';
import { scanExpiries } from '#workers/verify/expiries';
import { holdLock } from '../fixtures/hold-lock.js';
import { ORIGIN, testKey, type TestKey } from '../fixtures/snapshot.js';
import { SqlSnapshot } from '../fixtures/sql-publisher.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** Publishes a registry in a real Postgres, which the real pipeline fills. */

const { db, registry } = useRegistry('file');
const snapshot = new SqlSnapshot(db);
afterAll(() => snapshot.close());

const admit = (count: number, overrides = {}): Promise<string[]> =>
  registry.admitAll(Array.from({ length: count }, () => registry.item(overrides)));

describe('publisher on PostgreSQL', () => {
  it('publishes admissions, denials and revocations', async () => {
    const [revoked, admitted] = await admit(300);
    const [denied] = await admit(1, { action: 'DELETE_AUDIT_LOG' });
    await registry.revoke(revoked!);
    await registry.reportAll();
    const publisher = snapshot.publisher();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    await publisher.close();
    const published = await snapshot.published();
    expect(published.status(revoked!, 'trust')).toBe('REVOKED');
    expect(published.status(admitted!, 'trust')).toBe('TRUST_ESTABLISHED');
    expect(published.status(denied!)).toBe('VALID');
    expect(published.status(denied!, 'trust')).toBe('BACKEND_LOOKUP_REQUIRED');
  });

  it('publishes tokens until they expire, and packages with their members', async () => {
    const proofIds = await admit(2);
    const engine = db.as('svc_engine');
    const made = await createPackage(engine, registry.tenantNo, {
      packageId: `pkg_${registry.item().proofId}`,
      keyNo: 1,
      proofIds,
      membersHash: nativeSha256(canonicalBytes(proofIds)),
    });
    if (made.outcome === 'unfit') throw new Error('unfit');
    const { packageId } = made.package;
    const share = async (target: ShareTarget, endsIn: number | null) => {
      const token = `share_${randomBytes(32).toString('base64url')}`;
      const expiresAt = endsIn === null ? null : (await databaseTime(db.sql)) + endsIn;
      const tokenHash = nativeSha256(utf8(token));
      await createShareToken(engine, registry.tenantNo, { tokenHash, keyNo: 1, target, expiresAt });
      return token;
    };
    const lasting = await share({ artifactKind: 'package', packageId }, null);
    const ending = await share({ artifactKind: 'trust', proofId: proofIds[0]! }, 60_000);
    const publisher = snapshot.publisher();
    // The package waits, because its members are not verified yet.
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', shareChanges: 3 });
    let published = await snapshot.published();
    expect(published.package(packageId)).toBeNull();
    expect(published.share(ending)).toMatchObject({ id: proofIds[0] });
    await registry.reportAll();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', shareChanges: 0 });
    published = await snapshot.published();
    expect(published.package(packageId)).toEqual(proofIds);
    expect(published.share(lasting)).toMatchObject({ id: packageId });
    expect(published.share(ending)).toMatchObject({ id: proofIds[0] });

    await db.sql`update svc.share_due set expires_at = now()`;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    await scanExpiries(registry.verify, 100);
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 1, changedRecords: 0 });
    await publisher.close();
    published = await snapshot.published();
    expect(published.share(ending)).toBeNull();
    expect(published.share(lasting)).not.toBeNull();
  });

  it("has one leader in two processes, and fails over when the leader's connection is cut", async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
    const one = snapshot.publisher();
    const two = snapshot.publisher({ directory: elsewhere });
    await one.runCycle();
    expect(one.isLeader()).toBe(true);
    expect(await two.runCycle()).toEqual({ outcome: 'standby' });
    // The leader's connection is cut, so the database releases its lock.
    await db.sql`
      select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
      where d.datname = current_database() and locktype = 'advisory' and granted
        and classid = ${0x737663} and objid = 1`;
    await expect.poll(() => two.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await one.runCycle()).toEqual({ outcome: 'standby' });
    await two.close();
    await admit(1);
    await registry.reportAll();
    expect(await one.runCycle()).toMatchObject({ outcome: 'published' });
    await one.close();
    rmSync(elsewhere, { recursive: true });
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
    await admit(1);
    await registry.reportAll();
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
