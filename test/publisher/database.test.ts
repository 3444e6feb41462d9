import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { PublicServer } from '#api/public/server';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import type { Facade as FacadeBody } from '#protocol/schemas/facade';
import { DatabaseLease } from '#publisher/registry/lease';
import type { Publisher } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import { type HttpServer } from '#runtime/http/server';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { createPackage } from '#sql/lifecycle/packages';
import { createShareToken, type ShareTarget } from '#sql/lifecycle/share-tokens';
import { databaseTime, insertVerdicts, verifiedPrefix } from '#sql/log/verdicts';
import { scanExpiries } from '#workers/verify/expiries';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { VERDICT_LOCK } from '#workers/verify/context';
import { withoutTriggers } from '../fixtures/database.js';
import { PublishedGrants } from '../fixtures/published.js';
import { SqlSnapshot } from '../fixtures/sql-publisher.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** From a registry in a real Postgres, filled by the real pipeline, to responses over HTTP. */

const { db, registry } = useRegistry('file');
let publicServer: PublicServer;
let server: HttpServer;
const snapshot = new SqlSnapshot(db);
const { directory } = snapshot;
const publishers: Publisher[] = [];
const pools: Pool[] = [];

function publisherIn(where: string): Publisher {
  const lock = connect(db.urlFor('svc_publisher'), { application: 'lock', max: 1 });
  pools.push(lock);
  const publisher = snapshot.publisher({ leases: [new DatabaseLease(lock)], directory: where });
  publishers.push(publisher);
  return publisher;
}

beforeAll(async () => {
  publicServer = snapshot.publicServer();
  server = await snapshot.serve(publicServer);
});
afterEach(async () => {
  for (const publisher of publishers.splice(0)) await publisher.close();
  for (const pool of pools.splice(0)) await pool.end({ timeout: 5 });
});
afterAll(() => snapshot.close());

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
  it('publishes REVOKED when the revocation commits while the verifier runs', async () => {
    const [id] = await admit(1);
    // All writers of verdicts take this lock, so the verifier has read and cannot write yet.
    const lock = await db.sql.reserve();
    await lock`select pg_advisory_lock(${VERDICT_LOCK})`;
    const verifying = extendVerifiedPrefix(registry.verify, 1000);
    await vi.waitFor(async () => {
      const waiting =
        await db.sql`select from pg_locks where locktype = 'advisory' and not granted`;
      expect(waiting.length).toBeGreaterThan(0);
    });
    await registry.revoke(id!);
    await lock`select pg_advisory_unlock(${VERDICT_LOCK})`;
    lock.release();
    expect(await verifying).toBeGreaterThan(0);
    await registry.verifyAll();
    const publisher = publisherIn(directory);
    await publisher.runCycle();
    expect(await statusOf(`proof/${id}`)).toBe('REVOKED');
    // Neither a later verdict nor a row attached to another proof withdraws the revocation.
    const [leaf] = await db.sql<{ leaf_index: number }[]>`
      select leaf_index from svc.log_entry where proof_id = ${id!}::uuid`;
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
      withoutTriggers(
        db,
        `update svc.log_entry set revokes = '${under}' where kind = 2 and revokes = '${from}'`,
      );
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
    const published = new PublishedGrants(snapshot);
    // The package's members are not verified yet, and its tokens are later changes.
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 0 });
    await registry.verifyAll();
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 2, shareChanges: 3 });
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    expect(await published.share(lasting)).toMatchObject({ package_id: packageId });
    expect(await published.share(ending)).toMatchObject({ proof_id: proofIds[0] });

    await db.sql`update svc.share_due set expires_at = now()`;
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 0 });
    await scanExpiries(registry.verify, 100);
    await registry.revoke(proofIds[1]!);
    await registry.verifyAll();
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 1, changedRecords: 1 });
    expect(await published.share(ending)).toMatchObject({ artifact_kind: null });
    expect(await published.share(lasting)).toMatchObject({ package_id: packageId });
    expect(await published.statusOf(packageId)).toBe('REVOKED');
  });

  it("leads in one of two processes, and fails over when the leader's connection is cut", async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
    const one = publisherIn(directory);
    const two = publisherIn(elsewhere);
    expect(await one.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await two.runCycle()).toEqual({ outcome: 'standby' });
    // The leader's connection is cut, so the database releases its lock.
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
