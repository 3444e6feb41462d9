import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { waitingGauges } from '#programs/metrics/worker';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { createRegistry } from '#runtime/ops/ops';
import { setAllowlisted, setLane } from '#sql/tenants/administration';
import { type AdmitQueue } from '#runtime/queue/queues';
import { acceptIntake } from '#sql/admissions/intake';
import { activePolicy } from '#sql/admissions/policies';
import { announcePending, OUTCOMES_CHANNEL } from '#sql/admissions/outcomes';
import { pendingOlderThan } from '#sql/admissions/pending';
import { unpackIds } from '#sql/db/columns';
import { transaction } from '#sql/db/transaction';
import { lockHead, TileDamagedError } from '#sql/log/append';
import { jwkThumbprint } from '#protocol/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { DeferredError, SigningKeyInactiveError } from '#workers/admit/context';
import { processAdmissions } from '#workers/admit/process';
import { keepRequeueing } from '#workers/requeue';
import { startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { policyCache } from '#policy/check';
import { PolicySetError } from '#policy/policy-set';
import { accepted, aepOf, itemWith, stateOf } from '../fixtures/admissions.js';
import { agentItem, closeEnvelope, newRunId } from '../fixtures/agent.js';
import { parseExposition, valueOf } from '../fixtures/exposition.js';
import { APPEND_LOCK, holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { beforeRow, withoutTriggers } from '../fixtures/database.js';
import { freshSigner, TENANT } from '../fixtures/registry.js';
import { eventually } from '../fixtures/stack.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

it('processAdmissions > announces each result that a caller waits for: admitted, rejected or quarantined', async () => {
  const heard: string[] = [];
  const hear = (payload: string) => heard.push(...unpackIds(payload));
  await new Promise<void>((listens) =>
    db.as('svc_engine').onNotification(OUTCOMES_CHANNEL, hear, listens),
  );
  const admitted = await accepted(registry, registry.item());
  await processAdmissions(registry.admit, [admitted]);
  const locked = await accepted(registry, registry.item());
  await processAdmissions({ ...registry.admit, admissionsPaused: true }, [locked]);
  const altered = await accepted(registry, registry.item());
  await db.sql`update svc.intake set request = '{}' where proof_id = ${altered}`;
  await processAdmissions(registry.admit, [altered]);
  await expect.poll(() => heard).toEqual([admitted, locked, altered]);
});

describe('admission stays pending after a failure that it did not cause:', () => {
  let waiting: string;
  beforeEach(async () => {
    waiting = await accepted(registry, registry.item());
  });
  const isProvedLater = async () => {
    expect(await stateOf(registry, waiting)).toBeUndefined();
    await processAdmissions(registry.admit, [waiting]);
    expect(await stateOf(registry, waiting)).toMatchObject({ state: 'proved' });
  };

  it.each([
    ['a serialization failure', '40001'],
    ['a deadlock', '40P01'],
    ['a lock timeout', '55P03'],
  ])('%s', async (_, code) => {
    const fail = `raise exception 'not now' using errcode = '${code}';`;
    const remove = await beforeRow(db, 'insert on svc.log_entry', fail);
    const working = processAdmissions(registry.admit, [waiting]).finally(remove);
    await expect(working).rejects.toMatchObject({ code });
    await isProvedLater();
  });

  it('a failed append of a group that has no time left for this admission', async () => {
    const first = await accepted(registry, registry.item());
    const fail = `raise exception 'not now' using errcode = '40001';`;
    const remove = await beforeRow(db, 'insert on svc.log_entry', fail);
    const ids = [first, waiting];
    const hurried = processAdmissions(registry.admit, ids, NO_REQUEST_IDS, Number.MIN_VALUE);
    await expect(hurried.finally(remove)).rejects.toMatchObject({
      cause: expect.objectContaining({ code: '40001' }) as Error,
      left: [waiting],
    });
    await processAdmissions(registry.admit, [first]);
    await isProvedLater();
  });

  it('an unknown request type', async () => {
    // A newer version accepts this request type while this version still runs.
    const id = await accepted(registry, registry.item());
    await db.sql`alter table svc.intake drop constraint intake_lane_check`;
    await db.sql`update svc.intake set lane = 3 where replace(proof_id::text, '-', '') = ${id}`;
    const hurried = processAdmissions(
      registry.admit,
      [id, waiting],
      NO_REQUEST_IDS,
      Number.MIN_VALUE,
    );
    await expect(hurried).rejects.toMatchObject({ left: [waiting] });
    expect(await stateOf(registry, waiting)).toBeUndefined();
    await expect(processAdmissions(registry.admit, [id, waiting])).rejects.toMatchObject({
      cause: new Error('this version does not know request type 3'),
      message: expect.stringMatching(/^1 of the group/) as string,
    });
    expect(await stateOf(registry, id)).toBeUndefined();
    expect(await stateOf(registry, waiting)).toMatchObject({ state: 'proved' });
    await db.sql`delete from svc.intake_pending where replace(proof_id::text, '-', '') = ${id}`;
  });

  it('a policy set that this worker cannot evaluate', async () => {
    const digest = await activePolicy(registry.engine);
    const change = (expression: string) =>
      db.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        await tx.unsafe(`update svc.policy_set set files = ${expression} where digest = $1`, [
          digest,
        ] as never);
      });
    await change(`jsonb_set(files, '{policies,more}', '"permit (principal, action, resource);"')`);
    const uncached = { ...registry.admit, policy: policyCache(registry.admit.sql) };
    await expect(processAdmissions(uncached, [waiting])).rejects.toMatchObject({
      cause: expect.any(PolicySetError) as Error,
    });
    await change(`files #- '{policies,more}'`);
    await isProvedLater();
  });

  it('a damaged row that the next append checks', async () => {
    const id = await accepted(registry, registry.item());
    await processAdmissions(registry.admit, [id]);
    const setKey = (keyId: string) =>
      withoutTriggers(db, `update svc.log_entry set key_id = '${keyId}' where proof_id = '${id}'`);
    await setKey('damaged');
    await expect(processAdmissions(registry.admit, [waiting])).rejects.toThrow(TileDamagedError);
    await setKey(registry.admit.keyId);
    await isProvedLater();
  });

  it('a key entry that this version cannot read', async () => {
    const setBody = (expression: string) =>
      withoutTriggers(
        db,
        `update svc.log_entry set body = ${expression}
          where leaf_index = (select max(leaf_index) from svc.log_entry where kind = 3)`,
      );
    await setBody(`body || '\\x20'`);
    await expect(processAdmissions(registry.admit, [waiting])).rejects.toThrow(/unreadable/);
    await setBody('substring(body for length(body) - 1)');
    await isProvedLater();
  });
});

it('svc_pending_oldest_seconds > is an age by the clock of the database, not of the worker', async () => {
  const id = await accepted(registry, registry.item());
  await db.sql`update svc.intake_pending set accepted_at = accepted_at - interval '1 hour' where proof_id = ${id}`;
  const metrics = createRegistry('worker');
  let reading: Promise<unknown> | undefined;
  const every = <T>(_everyMs: number, name: string, read: () => Promise<T>) => {
    const latest: { value: T | null } = { value: null };
    if (name === 'pending') reading = read().then((value) => (latest.value = value));
    return latest;
  };
  const worker = { isQueueUp: () => true, queues: () => Promise.reject(new Error('not read')) };
  const clock = vi.spyOn(Date, 'now').mockReturnValue(0);
  try {
    waitingGauges(metrics, { sql: registry.admit.sql, every }, worker);
    await reading;
    const exposed = parseExposition(await metrics.metrics());
    expect(valueOf(exposed, 'svc_pending_oldest_seconds')).toBeGreaterThanOrEqual(3_600);
  } finally {
    clock.mockRestore();
    await processAdmissions(registry.admit, [id]);
  }
});

describe('admission with a future time', () => {
  let id: string;
  beforeEach(async () => {
    id = await accepted(registry, registry.item());
  });
  // The engine stored the admission before the database clock was set back.
  const move = async (interval: string) => {
    for (const table of ['intake', 'intake_pending']) {
      await db.sql`
        update svc.${db.sql(table)} set accepted_at = accepted_at + ${interval}::interval
        where replace(proof_id::text, '-', '') = ${id}`;
    }
  };

  it('stays pending until that time', async () => {
    await move('1 hour');
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(registry, id)).toBeUndefined();
    expect(await pendingOlderThan(registry.admit.sql, 0, 1)).toEqual([]);
    await move('-1 hour');
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(registry, id)).toMatchObject({ state: 'proved' });
  });

  it('is found without an announcement and rejected if that time is more than a day away', async () => {
    await move('2 days');
    const found = await pendingOlderThan(registry.admit.sql, 2_000, 10);
    expect(found.map(({ proofId }) => proofId)).toEqual([id]);
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(registry, id)).toMatchObject({
      state: 'refused',
      code: 'processing_failed',
    });
  });
});

describe('admission that is accepted and not yet appended', () => {
  let waiting: string;
  beforeEach(async () => {
    const item = registry.item();
    waiting = item.proofId;
    await acceptIntake(registry.engine, [item]);
  });
  afterEach(() => processAdmissions(registry.admit, [waiting]));
  const outcome = () => stateOf(registry, waiting);

  it('is rejected when its tenant is removed from the allowlist', async () => {
    await setAllowlisted(registry.admin, TENANT, false);
    await processAdmissions(registry.admit, [waiting]);
    await setAllowlisted(registry.admin, TENANT, true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'tenant_not_allowlisted' });
  });

  it('is rejected in a paused environment, but not for tenants of the other environment', async () => {
    const tenantId = 'acme-live';
    const tenantNo = await registry.addTenant(tenantId, 'live');
    const item = () => ({
      ...itemWith(registry, { tenant_id: tenantId }),
      tenantNo,
      environment: 'live' as const,
    });
    const locked = await accepted(registry, item());
    await processAdmissions(registry.admit, [locked]);
    expect(await stateOf(registry, locked, tenantNo)).toMatchObject({
      state: 'refused',
      code: 'lane_locked',
    });

    await setLane(registry.admin, 'live', true);
    const open = await accepted(registry, item());
    await processAdmissions(registry.admit, [open]);
    await setLane(registry.admin, 'live', false);
    const aep = await aepOf(registry, open, tenantNo);
    expect(aep.environment).toBe('live');
  });

  it('is rejected when its environment is paused while a worker waits for the append lock', async () => {
    let working: Promise<unknown> | undefined;
    await transaction(db.sql, async (tx) => {
      await lockHead(tx);
      working = processAdmissions(registry.admit, [waiting]);
      await untilWaiting(db.sql);
      await tx`update svc.lane set open = false where environment = 'sandbox'`;
    });
    await working;
    await setLane(registry.admin, 'sandbox', true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'lane_locked' });
  });

  it.each([
    ['the environment', () => setLane(registry.admin, 'sandbox', true)],
    ['the allowlist', () => setAllowlisted(registry.admin, TENANT, true)],
  ])('is appended before a concurrent change of %s takes effect', async (_, change) => {
    const unlock = await holdLock(db.sql, APPEND_LOCK);
    const order: string[] = [];
    const changing = change().then(() => order.push('changed'));
    await untilWaiting(db.sql);
    order.push('appended');
    await unlock();
    await changing;
    expect(order).toEqual(['appended', 'changed']);
  });

  it('is requeued when stale, oldest first and in pages', async () => {
    const ids = [waiting];
    for (let age = 1; age <= 4; age += 1) {
      const id = await accepted(registry, registry.item());
      ids.unshift(id);
      await db.sql`
        update svc.intake_pending set accepted_at = accepted_at - ${`${age} minutes`}::interval
        where replace(proof_id::text, '-', '') = ${id}`;
    }
    const pages: string[][] = [];
    const counted: number[] = [];
    const metrics = {
      committed: () => undefined,
      took: () => undefined,
      requeued: (_: string, count: number) => counted.push(count),
    };
    // Accepts only the first admission of a page, as if the others were already waiting for a group.
    const take = (page: readonly string[], _: unknown, owners: readonly string[] = []) => {
      expect(owners).toEqual(page.map(() => String(registry.tenantNo)));
      pages.push([...page]);
      return page.slice(0, 1);
    };
    const limits = { olderThanMs: 0, pageSize: 2 };
    const queue = {} as AdmitQueue;
    const isDown = () => true;
    const options = { everyMs: 1, ...limits, isDown, take, chunks: () => Promise.resolve() };
    const stopping = new AbortController();
    onTestFinished(() => stopping.abort());
    const context = { ...registry.admit, metrics };
    const requeueing = keepRequeueing(context, queue, options, stopping.signal);
    // The worker continues with the next page, even if the first is still pending.
    await expect.poll(() => pages).toContainEqual([waiting]);
    expect([pages[0], counted[0]]).toEqual([ids.slice(0, 2), 1]);
    stopping.abort();
    await requeueing;
    expect(await pendingOlderThan(registry.admit.sql, 0, 1)).toMatchObject([{ proofId: ids[0] }]);
    await processAdmissions(registry.admit, ids);
  });

  it('is found by a running worker without an entry in the queue, even after a failed requeue', async () => {
    const rename = (from: string, to: string) =>
      db.sql.unsafe(`alter table svc.${from} rename to ${to}`);
    await rename('intake_pending', 'hidden');
    const failed: unknown[] = [];
    const worker = startAdmitWorker(
      {
        ...registry.admit,
        log: Object.assign(Object.create(registry.admit.log) as typeof registry.admit.log, {
          warn: (fields: { err?: unknown }) => void failed.push(fields.err),
        }),
      },
      { databaseUrl: db.urlFor('svc_worker'), redisUrl: null },
      { ...WORKER_DEFAULTS, groupsAtOnce: 1, requeueEveryMs: 20, staleAfterMs: 0 },
    );
    try {
      await eventually(
        () => Promise.resolve(failed.length > 0 ? true : null),
        10_000,
        'a failed requeue',
      );
      await rename('hidden', 'intake_pending');
      const settled = await eventually(
        async () => (await outcome()) ?? null,
        10_000,
        'a decision about the requeued admission',
      );
      expect(settled).toMatchObject({ state: 'proved' });
    } finally {
      await worker.close();
    }
  });
});

it.each([
  ['admissions', () => registry.item()],
  ['closes of runs', () => agentItem(registry, closeEnvelope({ id: newRunId(), seq: 0 }))],
])('a worker whose key is not active leaves %s to other workers', async (_, next) => {
  const start = (context: typeof registry.admit) =>
    startAdmitWorker(
      context,
      { databaseUrl: db.urlFor('svc_worker'), redisUrl: null },
      // Long intervals, because a requeue would hide that the inactive worker keeps admissions.
      { ...WORKER_DEFAULTS, groupsAtOnce: 1, requeueEveryMs: 3_600_000, staleAfterMs: 3_600_000 },
    );
  const announced = async (): Promise<string> => {
    const id = await accepted(registry, next());
    await announcePending(registry.engine, [id], ['of-this-test'], [registry.tenantNo]);
    return id;
  };
  const signer = freshSigner();
  const failures: unknown[] = [];
  const log = Object.assign(Object.create(registry.admit.log) as typeof registry.admit.log, {
    error: (fields: { err?: unknown }) => void failures.push(fields.err),
  });
  const keyId = jwkThumbprint(nativeSha256, signer.publicKey);
  const inactive = start({ ...registry.admit, log, signer, keyId });
  const ids = [await announced()];
  await expect.poll(() => failures, { timeout: 20_000 }).toHaveLength(1);
  expect(await inactive.readiness()).toMatchObject({
    ready: false,
    details: { signing_key: 'unknown' },
  });
  const active = start(registry.admit);
  try {
    await active.ready;
    for (let more = 0; more < 20; more += 1) {
      ids.push(await announced());
      const outcome = () => stateOf(registry, ids.at(-1)!);
      await expect.poll(outcome, { timeout: 20_000 }).toBeDefined();
    }
    expect(await stateOf(registry, ids[0]!)).toBeDefined();
    expect(failures).toHaveLength(1);
    const [failure] = failures as Error[];
    expect(failure instanceof DeferredError ? failure.cause : failure).toBeInstanceOf(
      SigningKeyInactiveError,
    );
  } finally {
    await Promise.all([inactive.close(), active.close()]);
  }
});
