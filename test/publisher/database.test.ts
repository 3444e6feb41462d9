import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { createPublicServer, type PublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { formatVkey } from '#protocol/note';
import type { Facade as FacadeBody } from '#protocol/schemas/facade';
import { DatabaseLease } from '#publisher/registry/lease';
import type { Publisher } from '#publisher/publisher';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen, type HttpServer } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import { appendRevocation } from '#sql/lifecycle/entries';
import type { Pool } from '#sql/db/transaction';
import { createPackage } from '#sql/lifecycle/packages';
import { createShareToken, type ShareTarget } from '#sql/lifecycle/share-tokens';
import { databaseTime, insertVerdicts, verifiedPrefix } from '#sql/log/verdicts';
import { scanExpiries } from '#workers/verify/expiries';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { VERDICT_LOCK } from '#workers/verify/context';
import { scrub } from '#workers/verify/scrub';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { PublishedGrants } from '../fixtures/published.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';

/** From the registry in a real Postgres, filled by the real pipeline, to HTTP. */

let db: TestDatabase;
let registry: TestRegistry;
let publicServer: PublicServer;
let server: HttpServer;
const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
const logKey = testKey();
const snapshotKey = testKey();
const publishers: Publisher[] = [];
const pools: Pool[] = [];

function publisherIn(where: string): Publisher {
  const sql = db.as('svc_publisher');
  const lock = connect(db.urlFor('svc_publisher'), { application: 'lock', max: 1 });
  pools.push(lock);
  const publisher = sqlPublisher(sql, {
    leases: [new DatabaseLease(lock)],
    directory: where,
    logKey,
    snapshotKey,
  });
  publishers.push(publisher);
  return publisher;
}

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  publicServer = createPublicServer({
    snapshotSource: directorySource(directory),
    logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
    snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
    clock: systemClock,
    log: logger('facade', 'silent'),
  });
  server = await listen(publicServer.handler, { host: '127.0.0.1', port: 0 });
});
afterEach(async () => {
  for (const publisher of publishers.splice(0)) await publisher.close();
  for (const pool of pools.splice(0)) await pool.end({ timeout: 5 });
});
afterAll(async () => {
  await server.close(0);
  publicServer.close();
  rmSync(directory, { recursive: true });
  await db.drop();
});

async function statusOf(path: string): Promise<string> {
  await publicServer.poller.refresh();
  expect(publicServer.poller.rejection).toBeNull();
  const response = await fetch(`${server.url}/api/public/verify/${path}`);
  const body = (await response.json()) as Pick<FacadeBody, 'verification'> & { result?: string };
  return body.result ?? body.verification.verification_status;
}

const admit = (count: number, overrides = {}): Promise<string[]> =>
  registry.admitAll(Array.from({ length: count }, () => registry.item(overrides)));

describe('publisher on PostgreSQL', () => {
  it('never publishes a policy denial as an admission when its columns were changed and repaired', async () => {
    const [id] = await admit(1, { action: 'DELETE_AUDIT_LOG' });
    const set = (effect: string) =>
      db.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        await tx`update svc.proof set effect = ${effect} where proof_id = ${id!}::uuid`;
      });
    await set('ADMIT');
    await registry.verifyAll();
    const publisher = publisherIn(directory);
    await publisher.runCycle();
    expect(await statusOf(`trust/trust_${id}`)).toBe('BACKEND_LOOKUP_REQUIRED');
    await set('DENY');
    await scrub(registry.verify, 10_000);
    await publisher.runCycle();
    expect(await statusOf(`proof/${id}`)).toBe('VALID');
    expect(await statusOf(`trust/trust_${id}`)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await statusOf(`certificate/cert_${id}`)).toBe('BACKEND_LOOKUP_REQUIRED');
  });

  it('publishes REVOKED when the revocation commits during a verification', async () => {
    const [id] = await admit(1);
    // Everybody who writes verdicts takes this lock: the verifier has read, and cannot write yet.
    const lock = await db.sql.reserve();
    await lock`select pg_advisory_lock(${VERDICT_LOCK})`;
    const verifying = extendVerifiedPrefix(registry.verify, 1000);
    await vi.waitFor(async () => {
      const waiting =
        await db.sql`select from pg_locks where locktype = 'advisory' and not granted`;
      expect(waiting.length).toBeGreaterThan(0);
    });
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: id!,
      artifactKind: 'proof',
      reason: 'an audit found it wrong',
      actor: 'auditor',
      salt: '5'.repeat(64),
    });
    await lock`select pg_advisory_unlock(${VERDICT_LOCK})`;
    lock.release();
    expect(await verifying).toBeGreaterThan(0);
    await registry.verifyAll();
    const publisher = publisherIn(directory);
    await publisher.runCycle();
    expect(await statusOf(`proof/${id}`)).toBe('REVOKED');
    // Neither a later verdict nor a row attached to another proof withdraws it.
    const [leaf] = await db.sql<{ leaf_index: number }[]>`
      select leaf_index from svc.proof where proof_id = ${id!}::uuid`;
    const judgeAgain = async (outcome: 'pass' | 'fail') => {
      const prefix = await verifiedPrefix(registry.verify.sql);
      await insertVerdicts(registry.verify.sql, [
        {
          prefix: null,
          firstIndex: leaf!.leaf_index,
          lastIndex: leaf!.leaf_index,
          treeSize: prefix!.treeSize,
          root: prefix!.root,
          outcome,
          expired: [],
          checks: [],
        },
      ]);
      await publisher.runCycle();
    };
    await judgeAgain('pass');
    expect(await statusOf(`proof/${id}`)).toBe('REVOKED');
    const file = (from: string, under: string) =>
      db.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        await tx`
          update svc.log_entry set proof_id = ${under}::uuid
          where kind = 2 and proof_id = ${from}::uuid`;
      });
    await file(id!, '0'.repeat(32));
    await judgeAgain('pass');
    expect(await statusOf(`proof/${id}`)).toBe('REVOKED');
    await judgeAgain('fail');
    expect(await statusOf(`proof/${id}`)).toBe('REVOKED');
    await judgeAgain('pass');
    expect(await statusOf(`proof/${id}`)).toBe('REVOKED');
    await file('0'.repeat(32), id!);
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
    const publisher = publisherIn(directory);
    const published = new PublishedGrants({
      directory,
      logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
      snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
    });
    // Its members are not verified yet, and the tokens came after it.
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 0 });
    await registry.verifyAll();
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 2, shareChanges: 3 });
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    expect(await published.share(lasting)).toMatchObject({ package_id: packageId });
    expect(await published.share(ending)).toMatchObject({ proof_id: proofIds[0] });

    await db.sql`update svc.share_due set expires_at = now()`;
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 0 });
    await scanExpiries(registry.verify, 100);
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: proofIds[1]!,
      artifactKind: 'proof',
      reason: 'an audit found it wrong',
      actor: 'auditor',
      salt: '6'.repeat(64),
    });
    await registry.verifyAll();
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 1, changedRecords: 1 });
    expect(await published.share(ending)).toMatchObject({ artifact_kind: null });
    expect(await published.share(lasting)).toMatchObject({ package_id: packageId });
    expect(await published.statusOf(packageId)).toBe('REVOKED');
  });

  it('leads with one of two publishers, and fails over when that one dies', async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
    const one = publisherIn(directory);
    const two = publisherIn(elsewhere);
    expect(await one.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await two.runCycle()).toEqual({ outcome: 'standby' });
    // The leader's connection is cut; the database gives its lock back.
    await db.sql`
      select pg_terminate_backend(pid) from pg_locks
      where locktype = 'advisory' and granted and classid = ${0x737663} and objid = 1`;
    await expect.poll(() => two.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await one.runCycle()).toEqual({ outcome: 'standby' });
    await two.close();
    expect(await one.runCycle()).toMatchObject({ outcome: 'published' });
    rmSync(elsewhere, { recursive: true });
  });
});
