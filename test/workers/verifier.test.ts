import { setImmediate } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { Heartbeat } from '#runtime/ops/health';
import { setValidity } from '#sql/tenants/administration';
import { type Pool, type Transaction, transaction } from '#sql/db/transaction';
import { appendKeyChange } from '#sql/lifecycle/signing-keys';
import { appendEntries, lockHead } from '#sql/log/append';
import { verdictEntries } from '#sql/log/log';
import { scrubUrgently } from '#sql/log/verdicts';
import { verifierHeartbeats } from '#workers/verify/context';
import { recordErasures, recordExpiries } from '#workers/verify/expiries';
import { scrub } from '#workers/verify/scrub';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { runVerifier } from '#workers/verify/verifier';
import { untilWaiting } from '../fixtures/hold-lock.js';
import { eraseProof } from '../fixtures/erase.js';
import { freshSigner, TENANT } from '../fixtures/registry.js';
import { FLIP, tampering } from '../fixtures/tampering.js';
import { eventually } from '../fixtures/stack.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');

const { outcomeOf, tamper, verdictOf, holdVerdictLock } = tampering({ db, registry });

/** Appends a compromise that voids no proof, and for which the scrubber checks every leaf. */
async function compromiseOtherKey(): Promise<void> {
  const { publicKey } = freshSigner();
  const key = {
    keyId: jwkThumbprint(nativeSha256, publicKey),
    publicKey: toBase64Url(publicKey),
  };
  await appendKeyChange(registry.admin, { ...key, change: 'activate' });
  await appendKeyChange(registry.admin, {
    ...key,
    change: 'compromise',
    fromIndex: 0,
  });
}

const HOUR_OF_TRUST = { proof: null, certificate: null, passport: null, trust: 3600 };

describe('verifier', () => {
  it('repeats its scrub pass, and writes no verdict when nothing has changed', async () => {
    const ids = await registry.admitAll(Array.from({ length: 299 }, () => registry.item()));
    await registry.verifyAll();
    for (let step = 0; step < 3; step += 1) {
      expect(await scrub(registry.verify, 150)).toMatchObject({ changed: 0, urgent: false });
    }
    const [first, last] = [ids[0]!, ids[298]!];
    for (const id of [first, last]) await tamper(FLIP.signature, [id]);
    expect((await scrub(registry.verify, 150)).changed).toBe(1);
    expect([await outcomeOf(first), await outcomeOf(last)]).toEqual(['pass', 'fail']);
    expect((await scrub(registry.verify, 150)).changed).toBe(1);
    expect([await outcomeOf(first), await outcomeOf(last)]).toEqual(['fail', 'fail']);
    expect(await db.sql`select from svc.verdict where not frontier`).toHaveLength(2);
  });

  it('discards scrub results that it computed with an outdated key history', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(FLIP.signature, [id]);
    const lock = await holdVerdictLock();
    const scrubbing = scrub(registry.verify, 1000);
    await untilWaiting(db.sql);
    await transaction(registry.verify.sql, (tx) => scrubUrgently(tx, 0, 2));
    await lock.release();
    expect((await scrubbing).changed).toBe(0);
    expect(await outcomeOf(id)).toBe('pass');
    expect((await scrub(registry.verify, 1000)).changed).toBe(1);
  });

  it('fails no valid leaf when another verifier extends the prefix while a scrub pass starts', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    // More leaves than a tile has.
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await compromiseOtherKey();
    const { sql } = registry.verify;
    let isExtended = false;
    const extendedFirst = (tx: Transaction): Transaction =>
      new Proxy(tx, {
        apply: (target, self, given: [TemplateStringsArray]) => {
          const query = Reflect.apply(target, self, given) as unknown;
          if (isExtended || !given[0].join('').includes('from svc.scrub')) return query;
          isExtended = true;
          return extendVerifiedPrefix(registry.verify, 1000).then(() => query);
        },
      });
    const reserve = async (): Promise<Transaction> => extendedFirst(await sql.reserve());
    await scrub({ ...registry.verify, sql: { reserve } as Pool }, 1000);
    expect(isExtended).toBe(true);
    expect(await outcomeOf(ids[299]!)).toBe('pass');
  });

  it.each<[string, (id: string) => Promise<unknown>, () => Promise<unknown>]>([
    ['scrub pass', (id) => tamper(FLIP.signature, [id]), () => scrub(registry.verify, 1000)],
    [
      'expiry scan',
      () => tamper('update svc.expiry set expires_at = now()', []),
      () => recordExpiries(registry.verify, 1000),
    ],
    ['erasure scan', (id) => eraseProof(db, id), () => recordErasures(registry.verify, 1000)],
  ])(
    'waits for a concurrent writer of verdicts, and gives the verdicts of its %s a later time',
    async (_, make, work) => {
      await setValidity(registry.admin, TENANT, HOUR_OF_TRUST);
      const [id = ''] = await registry.admitAll([registry.item()]);
      await registry.verifyAll();
      await make(id);
      const lock = await holdVerdictLock();
      const order: string[] = [];
      const working = work().then(() => order.push('worked'));
      await untilWaiting(db.sql);
      order.push('released');
      const [clock] = await db.sql<{ now: Date }[]>`select clock_timestamp() as now`;
      await lock.release();
      await working;
      expect(order).toEqual(['released', 'worked']);
      const [verdict] = await db.sql<{ verified_at: Date }[]>`
      select verified_at from svc.verdict where not frontier`;
      expect(verdict?.verified_at.getTime()).toBeGreaterThanOrEqual(clock!.now.getTime());
    },
  );
});

describe('runVerifier', () => {
  const options = {
    batch: 10,
    maxBatch: 40,
    busyRate: 500,
    busyIntervalMs: 0,
    intervalMs: 1500,
    idleMs: 5,
    quietMs: 10,
    pollMs: 10,
    expiryScanMs: 5,
    scrubMs: 5,
    scrubBatch: 10,
    stallTimeoutMs: 60_000,
  };
  async function whileItRuns(
    work: () => Promise<void>,
    overrides: Partial<typeof options> = {},
  ): Promise<void> {
    const stopping = new AbortController();
    const running = runVerifier(registry.verify, stopping.signal, { ...options, ...overrides });
    try {
      await work();
    } finally {
      stopping.abort();
      await running;
    }
  }

  const untilOutcome = (id: string, outcome: string) =>
    eventually(
      async () => ((await outcomeOf(id)) === outcome ? true : null),
      10_000,
      `that it is ${outcome}`,
    );

  const seesTheEndOf = (id: string) =>
    eventually(
      async () => ((await verdictOf(id))?.expired.length === 1 ? true : null),
      10_000,
      'the expiry of an artifact',
    );

  it('continues when the clock of its host is set back', async () => {
    await setValidity(registry.admin, TENANT, HOUR_OF_TRUST);
    const { now } = Date;
    const clock = vi.spyOn(Date, 'now');
    // The artifact must expire after its first verification: otherwise it would need no expiry scan.
    const passesAndEnds = async (): Promise<string> => {
      const [id = ''] = await registry.admitAll([registry.item()]);
      await untilOutcome(id, 'pass');
      await tamper('update svc.expiry set expires_at = now()', []);
      await seesTheEndOf(id);
      return id;
    };
    try {
      await whileItRuns(async () => {
        await passesAndEnds();
        clock.mockImplementation(() => now() - 60 * 60_000);
        const id = await passesAndEnds();
        await tamper(FLIP.signature, [id]);
        await untilOutcome(id, 'fail');
      });
    } finally {
      clock.mockRestore();
    }
  });

  it('only scrubs while the log is idle, and continues with a new leaf and with an expiry', async () => {
    await setValidity(registry.admin, TENANT, HOUR_OF_TRUST);
    await registry.reportAll();
    let sleeps = 0;
    let passes = 0;
    let scrubs = 0;
    // The verifier sleeps for the whole polling interval only when no pass is due.
    const sleep = async (ms: number) => {
      if (ms === options.pollMs) sleeps += 1;
      else passes += 1;
      await setImmediate();
    };
    const scrub = Object.assign(new Heartbeat(1_000), { success: () => void (scrubs += 1) });
    Object.assign(registry.verify, {
      idleSleep: { sleep },
      heartbeats: { ...verifierHeartbeats(), scrub },
      signer: { ...registry.verify.signer, snapshotTtl: 86_400_000 },
    });
    const untilIdle = async () => {
      sleeps = passes = scrubs = 0;
      const isIdle = () => sleeps > passes + 20 && scrubs > 2 * passes + 5;
      await expect.poll(isIdle, { timeout: 10_000 }).toBe(true);
    };
    const work = async () => {
      await untilIdle();
      const [id = ''] = await registry.admitAll([registry.item()]);
      await untilOutcome(id, 'pass');
      await untilIdle();
      await tamper('update svc.expiry set expires_at = now()', []);
      await seesTheEndOf(id);
    };
    await whileItRuns(work);
  });

  it('renews the verdict entry of an idle log', async () => {
    await registry.reportAll();
    const setTtl = (snapshotTtl: number) => {
      registry.verify.signer = { ...registry.verify.signer!, snapshotTtl };
    };
    setTtl(1_000);
    const entries = async () => (await verdictEntries(db.sql, 1_000, 10)).length;
    const before = await entries();
    await whileItRuns(() => expect.poll(entries, { timeout: 10_000 }).toBeGreaterThan(before + 1));
  });

  it('appends the next verdict entry earlier in a busy log', async () => {
    await registry.reportAll();
    const entries = async () => (await verdictEntries(db.sql, 1_000, 10)).length;
    const snapshot = { kind: 'snapshot' as const, at: 0, body: Buffer.from('{}') };
    await transaction(db.sql, async (tx) => appendEntries(tx, await lockHead(tx), [snapshot]));
    const [id = ''] = await registry.admitAll([registry.item()]);
    const before = await entries();
    const slow = { busyIntervalMs: 0, intervalMs: 3_600_000 };
    const quiet = { ...slow, busyRate: Infinity };
    await whileItRuns(async () => void (await untilOutcome(id, 'pass')), quiet);
    expect(await entries()).toBe(before);
    await registry.admitAll([registry.item()]);
    const untilAppended = () => expect.poll(entries, { timeout: 10_000 }).toBe(before + 1);
    await whileItRuns(untilAppended, { ...slow, busyRate: 0 });
  });

  it('continues after a failed verification pass', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await db.sql`alter table svc.verdict rename to hidden`;
    await whileItRuns(async () => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      await db.sql`alter table svc.hidden rename to verdict`;
      await untilOutcome(ids[0]!, 'pass');
    });
  });
});
