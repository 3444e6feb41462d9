import { randomBytes } from 'node:crypto';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { setValidity } from '#sql/tenants/administration';
import { shareChangesSince, sharesNow, createShareToken } from '#sql/lifecycle/share-tokens';
import {
  databaseTime,
  expiryScanDoneAt,
  recordExpiryScan,
  verdictsForLeaves,
} from '#sql/log/verdicts';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { expireShares, scanExpiries } from '#workers/verify/expiries';
import { runVerifier, VERIFIER_DEFAULTS } from '#workers/verify/verifier';
import { withoutTriggers } from '../fixtures/database.js';
import { untilWaiting } from '../fixtures/append-lock.js';
import { eventually } from '../fixtures/stack.js';
import { TENANT } from '../fixtures/registry.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** Expiries by the database's clock, and the recorded times of expiry scans. */

const { db, registry } = useRegistry('test');
let proofId: string;
beforeEach(async () => {
  [proofId = ''] = await registry.admitAll([registry.item()]);
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

const step = (what: string, look: () => Promise<boolean>) =>
  eventually(async () => ((await look()) ? true : null), 10_000, what);

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
    const no = { proof: null, certificate: null, passport: null, trust: 0 };
    await setValidity(registry.admin, TENANT, no);
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
    const [{ leaf_index: leaf } = { leaf_index: -1 }] = await db.sql<{ leaf_index: number }[]>`
      select leaf_index from svc.log_entry where proof_id = ${ids[4]!}::uuid`;
    expect((await verdictsForLeaves(db.sql, [leaf])).get(leaf)?.expired).toEqual(['trust']);
  });

  it('records no scan time when an expiry was not visible', async () => {
    // The scan stalls after it began, so it may miss tokens that expire meanwhile.
    const lock = await db.sql.reserve();
    await lock`begin`;
    await lock`lock table svc.share_due in access exclusive mode`;
    const looking = scanExpiries(registry.verify, 10);
    await untilWaiting(db.sql);
    const meanwhile = await databaseTime(db.sql);
    await lock`commit`;
    lock.release();
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
    await step('the end of a token', async () => !(await isLive(token)));
    expect(await expiryScanDoneAt(db.sql)).toBe(before);
  } finally {
    stopping.abort();
    await running;
  }
  expect(await expiryScanDoneAt(db.sql)).toBe(before);
});
