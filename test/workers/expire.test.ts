import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import type { ArtifactKind } from '#protocol/status';
import { setValidity } from '#sql/tenants/administration';
import { leaseNextChunks } from '#sql/batches/chunks';
import { shareChangesSince, sharesNow, createShareToken } from '#sql/lifecycle/share-tokens';
import { expiryScanDoneAt, recordExpiryScan } from '#sql/log/verdicts';
import { databaseTime } from '#sql/db/transaction';
import { expireShares, recordExpiries, scanExpiries } from '#workers/verify/expiries';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { scrub } from '#workers/verify/scrub';
import { runVerifier, VERIFIER_DEFAULTS } from '#workers/verify/verifier';
import { holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { withoutTriggers } from '../fixtures/database.js';
import { TENANT } from '../fixtures/registry.js';
import { FLIP, tampering } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** Expiries by the database's clock, and the recorded times of expiry scans. */

const { db, registry } = useRegistry('test');

const { holdVerdictLock, tamper, verdictOf } = tampering({ db, registry });

let proofId: string;
beforeEach(async () => {
  [proofId = ''] = await registry.admitAll([registry.item()]);
});

const end = (kind: ArtifactKind) =>
  tamper(
    `update svc.expiry set expires_at = now() - interval '1 second' where artifact_kind = '${kind}'`,
    [],
  );

const noEnd = { proof: null, certificate: null, passport: null, trust: null };

it('expired artifact > stays expired when the leaf is verified again', async () => {
  const validity = { certificate: 3600, passport: 7200, trust: 3600 };
  await setValidity(registry.admin, TENANT, { ...noEnd, ...validity });
  const [id = ''] = await registry.admitAll([registry.item()]);
  expect(await recordExpiries(registry.verify, 100)).toBe(0);
  await registry.verifyAll();
  for (const kind of ['trust', 'certificate'] as const) {
    await end(kind);
    expect(await recordExpiries(registry.verify, 100)).toBe(1);
  }
  expect(await recordExpiries(registry.verify, 100)).toBe(0);
  expect(await verdictOf(id)).toMatchObject({
    outcome: 'pass',
    expired: ['certificate', 'trust'],
  });
  await tamper(FLIP.signature, [id]);
  await scrub(registry.verify, 1000);
  await tamper(FLIP.signature, [id]);
  await scrub(registry.verify, 1000);
  expect(await verdictOf(id)).toMatchObject({
    outcome: 'pass',
    expired: ['certificate', 'trust'],
  });
});

describe('expiries', () => {
  it('are not recorded early while the verifier waits for its lock', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 1 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const later = await registry.admitAll([registry.item(), registry.item()]);
    const lock = await holdVerdictLock();
    const verifying = registry.verifyAll();
    await sleep(1_100);
    // The chunk dispatcher has its own lock and does not wait for the verifier.
    expect(await leaseNextChunks(registry.admit.sql, 1)).toBeNull();
    await lock.release();
    await verifying;
    await recordExpiries(registry.verify, 100);
    for (const one of [id, ...later]) {
      const { expired, verifiedAt = 0 } = (await verdictOf(one)) ?? {};
      expect(expired).toEqual(['trust']);
      const [row] = await db.sql<{ at: Date }[]>`
        select accepted_at as at from svc.intake where proof_id = ${one}::uuid`;
      expect(verifiedAt).toBeGreaterThanOrEqual((row?.at.getTime() ?? Infinity) + 1_000);
    }
  });

  // Without the lock, a second scan would wait for the rows of the first, find no rows left, and report that all
  // expiries are recorded. The scan takes its time after the wait, when the verifier has checked the clock.
  it('wait for the lock of verifiers, and include what expires during the wait', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await share(60_000);
    const lock = await holdVerdictLock();
    const expiring = [recordExpiries(registry.verify, 100), expireShares(registry.verify, 100)];
    await untilWaiting(db.sql, 2);
    await tamper(`update svc.expiry set expires_at = clock_timestamp() - interval '1 ms'`, []);
    await db.sql`update svc.share_due set expires_at = clock_timestamp() - interval '1 ms'`;
    await lock.release();
    expect(await Promise.all(expiring)).toEqual([1, 1]);
  });

  it('are recorded after the verification of their leaf, and in batches', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    ids.push(...(await registry.admitAll([registry.item()])));
    await end('trust');
    expect(await recordExpiries(registry.verify, 1)).toBe(1);
    expect(await recordExpiries(registry.verify, 1)).toBe(1);
    expect(await recordExpiries(registry.verify, 1)).toBe(0);
    await registry.verifyAll();
    await end('trust');
    expect(await recordExpiries(registry.verify, 1)).toBe(1);
    for (const id of ids) expect((await verdictOf(id))?.expired).toEqual(['trust']);
  });

  it('are recorded with the first verdict when they have already passed', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 0, passport: 0, proof: 3600 });
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await tamper(FLIP.signature, [ids[1]!]);
    await extendVerifiedPrefix(registry.verify, 1000);
    const over = { outcome: 'pass', expired: ['passport', 'trust'], frontier: false };
    expect(await verdictOf(ids[0]!)).toMatchObject(over);
    expect(await verdictOf(ids[1]!)).toMatchObject({ outcome: 'fail', expired: [] });
    const due = await db.sql`select artifact_kind from svc.expiry`;
    expect(due).toEqual([{ artifact_kind: 'proof' }]);
    expect(await recordExpiries(registry.verify, 100)).toBe(0);
  });

  it('of a failing leaf are recorded when the leaf passes again, and hide no failed check', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 1 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 1000);
    const { failedChecks } = (await verdictOf(id))!;
    await sleep(1_100);
    await scanExpiries(registry.verify, 100);
    expect(failedChecks).toContain('signature');
    expect(await verdictOf(id)).toMatchObject({ outcome: 'fail', failedChecks });
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 1000);
    expect(await verdictOf(id)).toMatchObject({ outcome: 'pass', expired: ['trust'] });
  });

  it('are not read from an AEP that fails verification', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3_600_000_000 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const put = `update svc.intake set validity = jsonb_set(validity, '{trust}', $1::jsonb)`;
    await tamper(put, ['1']);
    await scrub(registry.verify, 1000);
    expect(await verdictOf(id)).toMatchObject({ outcome: 'fail', expired: [] });
    await tamper(put, ['3600000000']);
    await scrub(registry.verify, 1000);
    expect(await verdictOf(id)).toMatchObject({ outcome: 'pass', expired: [] });
  });
});

async function share(endsIn: number | null): Promise<string> {
  const tokenHash = randomBytes(32);
  const made = await createShareToken(registry.engine, registry.tenantNo, {
    tokenHash,
    keyNo: 1,
    target: { artifactKind: 'proof', proofId },
    expiresAt: endsIn === null ? null : (await databaseTime(db.sql)) + endsIn,
  });
  expect(made.outcome).toBe('created');
  return tokenHash.toString('hex');
}

/** Moves the due time of the token's expiry into the past. */
const letEnd = (hash: string) => db.sql`
  update svc.share_due set expires_at = now() - interval '1 second'
  where token_hash = ${Buffer.from(hash, 'hex')}`;

const isLive = async (hash: string): Promise<boolean> =>
  (await sharesNow(db.sql, [hash])).get(hash) !== null;

describe('share token', () => {
  it('expires once, when the verifier records it, and not early', async () => {
    const [ending, later, lasting] = [await share(60_000), await share(60_000), await share(null)];
    expect(await expireShares(registry.verify, 10)).toBe(0);
    await letEnd(ending);
    expect(await isLive(ending)).toBe(true);
    expect(await expireShares(registry.verify, 10)).toBe(1);
    expect(await expireShares(registry.verify, 10)).toBe(0);
    expect(await isLive(ending)).toBe(false);
    for (const hash of [later, lasting]) expect(await isLive(hash)).toBe(true);
    const changes = await shareChangesSince(db.sql, 0, 100);
    expect(changes.at(-1)).toEqual({ changeNo: 4, tokenHash: ending });
    expect(changes).toHaveLength(4);
  });

  it('expires by the clock of the database', async () => {
    const token = await share(60_000);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 });
    try {
      await scanExpiries(registry.verify, 10);
    } finally {
      vi.useRealTimers();
    }
    expect(await isLive(token)).toBe(true);
  });
});

describe('scanExpiries', () => {
  it('records every expiry, and then the start time of the scan', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 0 });
    const ids = await registry.admitAll(Array.from({ length: 5 }, () => registry.item()));
    while ((await extendVerifiedPrefix(registry.verify, 1000)) > 0);
    const tokens = [];
    for (let i = 0; i < 5; i++) tokens.push(await share(60_000));
    for (const token of tokens) await letEnd(token);
    expect(await expiryScanDoneAt(db.sql)).toBeNull();
    const before = await databaseTime(db.sql);
    await scanExpiries(registry.verify, 2);
    const after = await databaseTime(db.sql);
    const done = (await expiryScanDoneAt(db.sql))!;
    expect(done).toBeGreaterThanOrEqual(before);
    expect(done).toBeLessThanOrEqual(after);
    for (const token of tokens) expect(await isLive(token)).toBe(false);
    expect((await verdictOf(ids[4]!))?.expired).toEqual(['trust']);
  });

  it('records a scan time no later than its start when a lock delays the scan', async () => {
    // The scan waits for a lock after it began, so it may miss tokens that expire during the wait.
    const release = await holdLock(db.sql, 'lock table svc.share_due in access exclusive mode');
    const looking = scanExpiries(registry.verify, 10);
    await untilWaiting(db.sql);
    const meanwhile = await databaseTime(db.sql);
    await release();
    await looking;
    expect(await expiryScanDoneAt(db.sql)).toBeLessThanOrEqual(meanwhile);
  });

  it.each(['svc.share_due', 'svc.expiry'])(
    'does not record the scan as done when %s is missing',
    async (table) => {
      await scanExpiries(registry.verify, 10);
      const before = await expiryScanDoneAt(db.sql);
      while ((await extendVerifiedPrefix(registry.verify, 1000)) > 0);
      await db.sql.unsafe(`alter table ${table} rename to hidden`);
      await expect(scanExpiries(registry.verify, 10)).rejects.toThrow();
      expect(await expiryScanDoneAt(db.sql)).toBe(before);
      await db.sql.unsafe(`alter table svc.hidden rename to ${table.slice('svc.'.length)}`);
      await scanExpiries(registry.verify, 10);
      expect(await expiryScanDoneAt(db.sql)).toBeGreaterThan(before!);
    },
  );

  it('records no scan time on a database that has earlier expiries, such as after a failover', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    await registry.admitAll([registry.item()]);
    while ((await extendVerifiedPrefix(registry.verify, 1000)) > 0);
    for (const expire of [async () => letEnd(await share(60_000)), () => end('trust')]) {
      await scanExpiries(registry.verify, 10);
      const before = await expiryScanDoneAt(db.sql);
      await expire();
      await recordExpiryScan(registry.verify.sql, await databaseTime(db.sql));
      expect(await expiryScanDoneAt(db.sql)).toBe(before);
    }
  });

  it('does not replace a later scan time of another verifier', async () => {
    const now = await databaseTime(db.sql);
    await recordExpiryScan(registry.verify.sql, now);
    await recordExpiryScan(registry.verify.sql, now - 1000);
    expect(await expiryScanDoneAt(db.sql)).toBe(now);
  });

  it('corrects a scan time in the future when the database clock was set back', async () => {
    // A scan time in the future would claim expiries that no scan has covered.
    const now = await databaseTime(db.sql);
    await recordExpiryScan(registry.verify.sql, now + 3_600_000);
    await scanExpiries(registry.verify, 10);
    const done = (await expiryScanDoneAt(db.sql))!;
    expect(done).toBeGreaterThanOrEqual(now);
    expect(done).toBeLessThanOrEqual(await databaseTime(db.sql));
  });
});

it('runVerifier > records expiries but no scan time while it cannot extend the verified prefix', async () => {
  const stopping = new AbortController();
  const options = { ...VERIFIER_DEFAULTS, idleMs: 5, expiryScanMs: 5, scrubMs: 3_600_000 };
  while ((await extendVerifiedPrefix(registry.verify, 1000)) > 0);
  await scanExpiries(registry.verify, 10);
  const before = (await expiryScanDoneAt(db.sql))!;
  // The log head counts one leaf more than the log contains.
  await withoutTriggers(db, 'update svc.log_head set tree_size = tree_size + 1');
  const token = await share(60_000);
  await letEnd(token);
  const running = runVerifier(registry.verify, stopping.signal, options);
  try {
    await expect.poll(() => isLive(token)).toBe(false);
    expect(await expiryScanDoneAt(db.sql)).toBe(before);
  } finally {
    stopping.abort();
    await running;
  }
  expect(await expiryScanDoneAt(db.sql)).toBe(before);
});
