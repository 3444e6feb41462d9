import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ArtifactKind } from '#protocol/status';
import { setValidity } from '#sql/tenants/administration';
import { leaseNextChunks } from '#sql/batches/chunks';
import { expireShares, recordExpiries } from '#workers/verify/expiries';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { VERDICT_LOCK } from '#workers/verify/context';
import { scrub } from '#workers/verify/scrub';
import { TENANT } from '../fixtures/registry.js';
import { FLIP, tampering } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');

const { holdVerdictLock, tamper, verdictOf } = tampering({ db, registry });

const noEnd = { proof: null, certificate: null, passport: null, trust: null };

it('expired artifact > stays expired when the leaf is verified again', async () => {
  const validity = { certificate: 3600, passport: 7200, trust: 3600 };
  await setValidity(registry.admin, TENANT, { ...noEnd, ...validity });
  const [id = ''] = await registry.admitAll([registry.item()]);
  expect(await recordExpiries(registry.verify, 100)).toBe(0);
  await registry.verifyAll();
  await tamper(`update svc.expiry set expires_at = now() where artifact_kind <> 'passport'`, []);
  expect(await recordExpiries(registry.verify, 100)).toBe(1);
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
  const end = (kind: ArtifactKind) =>
    tamper(
      `update svc.expiry set expires_at = now() - interval '1 second' where artifact_kind = '${kind}'`,
      [],
    );

  it('of one leaf are recorded cumulatively', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, passport: 3600, trust: 3600 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    expect(await recordExpiries(registry.verify, 100)).toBe(0);
    expect((await verdictOf(id))?.expired).toEqual([]);
    await end('trust');
    expect(await recordExpiries(registry.verify, 100)).toBe(1);
    await end('passport');
    expect(await recordExpiries(registry.verify, 100)).toBe(1);
    expect((await verdictOf(id))?.expired).toEqual(['passport', 'trust']);
  });

  it('are not recorded early while the verifier waits for its lock', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 1 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const later = await registry.admitAll([registry.item(), registry.item()]);
    const holder = await db.sql.reserve();
    await holder`begin`;
    await holder`select pg_advisory_xact_lock(${VERDICT_LOCK})`;
    const verifying = registry.verifyAll();
    await sleep(1_100);
    // The chunk dispatcher has its own lock and does not wait for the verifier.
    expect(await leaseNextChunks(registry.admit.sql, 1)).toBeNull();
    await holder`commit`;
    holder.release();
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

  // A second scan would wait for the rows of the first, find none left, and report that all are recorded.
  it('of share tokens are recorded by one verifier at a time', async () => {
    const lock = await holdVerdictLock();
    const expiring = expireShares(registry.verify, 100);
    const waits = () => db.sql`select from pg_locks where locktype = 'advisory' and not granted`;
    await expect.poll(waits).toHaveLength(1);
    await lock.release();
    expect(await expiring).toBe(0);
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
