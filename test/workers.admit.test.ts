import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { verifyEnvelopeOf } from './helpers/verify-envelope.js';
import {
  createTenant,
  putFixture,
  setAllowlisted,
  setLane,
  setValidity,
} from '#sql/administration';
import { appendKeyChange } from '#sql/lifecycle';
import { createSigningKey, nativeSha256 } from '#runtime/crypto';
import { fromHex, toBase64Url, toHex, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { jwkThumbprint } from '#protocol/keys';
import { aepSchema, type Aep } from '#protocol/schemas/aep';
import { formatTime } from '#protocol/time';
import { packageRoot } from '#runtime/package-root';
import { openAdmitQueue, openBatchQueue } from '#runtime/queues';
import { HungError } from '#runtime/watchdog';
import { readPolicyInput } from '#sql/append';
import { DatabaseUnavailableError } from '#sql/errors';
import { acceptIntake, type IntakeItem } from '#sql/intake';
import { entryRows, treeSize } from '#sql/log';
import { activatePolicy, activePolicy, storePolicySet } from '#sql/policies';
import { readProof } from '#sql/proofs';
import { pendingDepth, pendingOlderThan, settledIn } from '#sql/settlement';
import { asTenants } from '#sql/tenant-scope';
import { SigningKeyInactiveError } from '#workers/admit/errors';
import { processAdmissions } from '#workers/admit/process';
import { sweep } from '#workers/admit/sweep';
import { startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { policyCache } from '#policy/cache';
import { IntakeMismatchError, UnknownLaneError } from '#policy/errors';
import { CEDAR_VERSION, makePolicySet, PolicySetError, readPolicyFolder } from '#policy/policy-set';
import { holdAppendLock, untilWaiting } from './helpers/append-lock.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import { openRegistry, TENANT, type TestRegistry } from './helpers/registry.js';
import { eventually } from './helpers/stack.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterAll(() => db.drop());

const defaultPolicy = join(packageRoot, 'policy', 'default');

/** An item whose request has other fields, and the hash that goes with them. */
function itemWith(fields: Record<string, JsonValue>): IntakeItem {
  const item = registry.item();
  const plain = JSON.parse(Buffer.from(item.request).toString()) as Record<string, JsonValue>;
  const request = { ...plain, ...fields };
  return {
    ...item,
    request: utf8(JSON.stringify(request)),
    requestHash: fromHex(documentHash(nativeSha256, request)),
  };
}

async function accepted(item: IntakeItem): Promise<string> {
  await acceptIntake(registry.engine, [item]);
  return item.proofId;
}

const stateOf = async (id: string, tenantNo = registry.tenantNo) =>
  (await settledIn(registry.engine, [{ tenantNo, id }])).get(id);

async function aepOf(id: string, tenantNo = registry.tenantNo): Promise<Aep> {
  const proof = await readProof(registry.engine, tenantNo, id);
  return aepSchema.parse(JSON.parse(proof?.aep?.toString() ?? 'null'));
}

/** Makes the append of any proof fail with this SQLSTATE until it is called again with null. */
async function failAppends(code: string | null): Promise<void> {
  await db.sql.unsafe('drop trigger if exists failing on svc.proof');
  if (code === null) return;
  await db.sql.unsafe(`
    create or replace function public.failing() returns trigger language plpgsql as $$ begin
      raise exception 'not now' using errcode = '${code}'; end $$;
    create trigger failing before insert on svc.proof for each row execute function public.failing()`);
}

describe('admission', () => {
  it('becomes a signed proof with a place in the log', async () => {
    const [id = ''] = await registry.admitAll([registry.item({ action: 'GET_USER_DETAILS' })]);
    const proof = await readProof(registry.engine, registry.tenantNo, id);
    expect(proof).not.toBeNull();
    expect(proof?.effect).toBe('ADMIT');
    const [entry] = await entryRows(registry.engine, proof!.leafIndex, proof!.leafIndex + 1);
    expect(Buffer.from(entry!.bytes).toString()).toContain(id);
    expect(verifyEnvelopeOf(proof!, registry.admit.signer.publicKey)).toBe(true);
    expect(await pendingDepth(registry.engine, 10)).toBe(0);
  });

  it('denied by policy is a proof too', async () => {
    const [id = ''] = await registry.admitAll([registry.item({ action: 'DELETE_AUDIT_LOG' })]);
    const settled = (await registry.settledIn([id])).get(id);
    expect(settled).toMatchObject({
      state: 'proved',
      effect: 'DENY',
      reasons: ['audit-log-is-kept'],
    });
  });

  it('binds a fixture that is known and one that is not', async () => {
    const [id = ''] = await registry.admitAll([
      registry.item({ proof_chain_fixture_ref: 'fixture-nobody-knows' }),
    ]);
    const proof = await readProof(registry.engine, registry.tenantNo, id);
    const aep = JSON.parse(proof!.aep!.toString()) as { evidence: unknown };
    expect(aep.evidence).toEqual({ fixture_ref: 'fixture-nobody-knows', fixture_hash: null });
  });

  it('delivered many times at once is proved once, with the same bytes', async () => {
    const items = Array.from({ length: 20 }, () => registry.item());
    const before = await treeSize(registry.engine);
    await acceptIntake(registry.engine, items);
    const ids = items.map((item) => item.proofId);
    await Promise.all(
      [ids, [...ids].reverse(), ids.slice(5), ids].map((some) =>
        processAdmissions(registry.admit, some),
      ),
    );
    await processAdmissions(registry.admit, ids);
    expect(await treeSize(registry.engine)).toBe(before + 20);
    expect((await registry.settledIn(ids)).size).toBe(20);
  });

  it('of the same body points to the first, also within a group and across groups at once', async () => {
    const first = registry.item({ intent_id: 'the-same' });
    const again = () => ({ ...registry.item({ intent_id: 'the-same' }) });
    const groups = await Promise.all([
      acceptIntake(registry.engine, [first, again(), registry.item()]),
      acceptIntake(registry.engine, [registry.item(), again()]),
      acceptIntake(registry.engine, [again(), again(), again()]),
    ]);
    const same = groups.flat().filter((_, index) => [0, 1, 4, 5, 6, 7].includes(index));
    const ids = new Set(
      same.map((one) => (one.outcome === 'idempotency_conflict' ? '' : one.proofId)),
    );
    expect(ids.size).toBe(1);
    expect(same.filter((one) => one.outcome === 'accepted')).toHaveLength(1);
    const accepted = groups
      .flat()
      .flatMap((one) => (one.outcome === 'accepted' ? one.proofId : []));
    await processAdmissions(registry.admit, accepted);
  });

  it('with an idempotency key is bound to its body', async () => {
    const item = { ...registry.item(), idempotencyKey: 'key-1' };
    expect(await acceptIntake(registry.engine, [item])).toMatchObject([{ outcome: 'accepted' }]);
    expect(await acceptIntake(registry.engine, [item])).toMatchObject([{ outcome: 'repeat' }]);
    const other = { ...registry.item(), idempotencyKey: 'key-1' };
    expect(await acceptIntake(registry.engine, [other])).toEqual([
      { outcome: 'idempotency_conflict' },
    ]);
    await processAdmissions(registry.admit, [item.proofId]);
  });

  it('that was never accepted is not signed, whatever a message says', async () => {
    const before = await treeSize(registry.engine);
    await processAdmissions(registry.admit, [registry.item().proofId]);
    expect(await treeSize(registry.engine)).toBe(before);
  });

  it('whose stored request was changed is set aside, and its neighbours are proved', async () => {
    const items = [registry.item(), registry.item(), registry.item()];
    await acceptIntake(registry.engine, items);
    const ids = items.map((item) => item.proofId);
    await db.sql`
      update svc.intake set request = ${Buffer.from('{"action":"OTHER"}')}
      where replace(proof_id::text, '-', '') = ${ids[1]!}`;
    await processAdmissions(registry.admit, ids);
    const settled = await registry.settledIn(ids);
    expect(settled.get(ids[0]!)?.state).toBe('proved');
    expect(settled.get(ids[1]!)).toMatchObject({ state: 'refused', code: 'processing_failed' });
    expect(settled.get(ids[2]!)?.state).toBe('proved');
  });

  it("that makes its group's transaction fail is set aside alone", async () => {
    const items = [registry.item(), registry.item(), registry.item({ action: 'POISON' })];
    const ids = items.map((item) => item.proofId);
    await db.sql.unsafe(`
      create function public.poison() returns trigger language plpgsql as $$ begin
        if new.action = 'POISON' then raise exception 'poison'; end if;
        return new; end $$;
      create trigger poison before insert on svc.proof for each row execute function public.poison()`);
    await acceptIntake(registry.engine, items);
    await processAdmissions(registry.admit, ids);
    await db.sql.unsafe('drop trigger poison on svc.proof; drop function public.poison()');
    const settled = await registry.settledIn(ids);
    expect(ids.map((id) => settled.get(id)?.state)).toEqual(['proved', 'proved', 'refused']);
    // The culprit has its identity back: the same body may be sent again, and now it passes.
    const [again] = await registry.admitAll([{ ...items[2]!, proofId: registry.item().proofId }]);
    expect((await registry.settledIn([again!])).get(again!)?.state).toBe('proved');
  });
});

describe('what is settled', () => {
  it('stays settled: it cannot be made pending or refused again', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const again = asTenants(
      registry.engine,
      [registry.tenantNo],
      (tx) => tx`insert into svc.intake_pending values (${id}::uuid, now())`,
    );
    await expect(again).rejects.toThrow(/is settled/);
    const refused = registry.admit.sql`
      update svc.intake set refused = true where proof_id = ${id}::uuid`;
    await expect(refused).rejects.toThrow(/is not refused/);
  });
});

describe('what an intake pins', () => {
  it.each([
    ['another environment', `environment = 'live'`],
    ['a time to come', `accepted_at = now() + interval '1 year'`],
    ['a time before its policy was active', `accepted_at = now() - interval '1 year'`],
  ])('is checked, not believed: %s', async (_, change) => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await db.sql.unsafe(`update svc.intake set ${change} where proof_id = '${item.proofId}'`);
    await processAdmissions(registry.admit, [item.proofId]);
    const settled = await registry.settledIn([item.proofId]);
    expect(settled.get(item.proofId)).toMatchObject({
      state: 'refused',
      code: 'processing_failed',
    });
  });
});

describe('what a worker signs', () => {
  const noEnd = { proof: null, certificate: null, passport: null, trust: null };

  it('is what was pinned when it was accepted, whatever has changed since', async () => {
    const content = utf8('{"chain":1}');
    const fixtureHash = nativeSha256(content);
    await putFixture(registry.admin, { fixtureRef: 'fixture-known', fixtureHash, content });
    const seconds = { proof: 4000, passport: 3000, certificate: 2000, trust: 1000 };
    await setValidity(registry.admin, TENANT, seconds);
    const item = registry.item({ proof_chain_fixture_ref: 'fixture-known' });
    const id = await accepted(item);
    await setValidity(registry.admin, TENANT, noEnd);
    await processAdmissions(registry.admit, [id]);

    const proof = await readProof(registry.engine, registry.tenantNo, id);
    const endOf = (kind: keyof typeof seconds) =>
      formatTime(proof!.acceptedAt + seconds[kind] * 1000);
    const ends = {
      proof: endOf('proof'),
      passport: endOf('passport'),
      certificate: endOf('certificate'),
      trust: endOf('trust'),
    };
    const aep = await aepOf(id);
    expect(aep).toMatchObject({
      proof_id: id,
      tenant_id: TENANT,
      environment: 'sandbox',
      request_hash: toHex(item.requestHash),
      policy: { digest: (await activePolicy(registry.engine))?.toString('hex') },
      evidence: { fixture_ref: 'fixture-known', fixture_hash: toHex(fixtureHash) },
      valid_until: ends,
      accepted_at: formatTime(proof!.acceptedAt),
      salt: toHex(item.salt),
      key_id: registry.admit.keyId,
    });
    expect(aep.policy.engine_version).toBe(CEDAR_VERSION);
    await registry.verifyAll();
    const expiries = await db.sql<{ artifact_kind: string; expires_at: Date }[]>`
      select artifact_kind, expires_at from svc.expiry where leaf_index = ${proof!.leafIndex}`;
    expect(
      Object.fromEntries(
        expiries.map((row) => [row.artifact_kind, formatTime(row.expires_at.getTime())]),
      ),
    ).toEqual(ends);
  });

  it('names by its hash the exact input that policy decided on, which is kept', async () => {
    const [id = ''] = await registry.admitAll([
      registry.item({ action: 'SEND_REPORT', proof_chain_fixture_ref: 'fixture-known' }),
    ]);
    const { evidence, policy } = await aepOf(id);
    const input = await readPolicyInput(registry.admit.sql, fromHex(policy.input_hash));
    expect(input).toEqual({
      schema_version: 'svc.policy.input/1.0',
      tenant: { tenant_id: TENANT, environment: 'sandbox' },
      environment: 'sandbox',
      lane: 'execute',
      action: 'SEND_REPORT',
      agent: null,
      tool: null,
      fixture: { ref: 'fixture-known', hash: evidence.fixture_hash },
    });
    expect(toHex(nativeSha256(canonicalBytes(input)))).toBe(policy.input_hash);
  });

  it('of a denial ends with the proof alone: there is no passport to expire', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, proof: 4000, passport: 3000 });
    const [id = ''] = await registry.admitAll([
      registry.item({ action: 'DELETE_AUDIT_LOG', intent_id: 'denied-with-an-end' }),
    ]);
    await setValidity(registry.admin, TENANT, noEnd);
    const proof = await readProof(registry.engine, registry.tenantNo, id);
    expect(proof?.effect).toBe('DENY');
    await registry.verifyAll();
    const kinds = await db.sql`
      select artifact_kind from svc.expiry where leaf_index = ${proof!.leafIndex}`;
    expect(kinds).toEqual([{ artifact_kind: 'proof' }]);
  });

  it('is decided by the policy in force when it was accepted: the latest that has begun', async () => {
    const first = await activePolicy(registry.engine);
    const none = await makePolicySet({
      schema: (await readPolicyFolder(defaultPolicy)).schema,
      policies: {},
      sentences: {},
    });
    await storePolicySet(registry.admin, none);
    const decidedBy = async (id: string) => {
      await processAdmissions(registry.admit, [id]);
      const { decision, policy } = await aepOf(id);
      return { effect: decision.effect, digest: policy.digest };
    };
    // What is activated has begun by the next millisecond: columns of time are rounded to one.
    const begun = () => sleep(2);
    const before = await accepted(registry.item());
    // Begins later; the two after it began at once, and of those the last counts.
    await db.sql`
      insert into svc.policy_activation (digest, active_from)
      values (${first}, now() + interval '1 hour')`;
    expect(await activePolicy(registry.engine)).toEqual(first);
    await db.sql`
      insert into svc.policy_activation (digest) values (${first}), (${none.digest})`;
    await begun();
    expect(await activePolicy(registry.engine)).toEqual(none.digest);
    const between = await accepted(registry.item());
    await activatePolicy(registry.admin, first!);
    await begun();
    const after = await accepted(registry.item());

    expect(await decidedBy(after)).toEqual({ effect: 'ADMIT', digest: first?.toString('hex') });
    expect(await decidedBy(between)).toEqual({
      effect: 'DENY',
      digest: none.digest.toString('hex'),
    });
    expect(await decidedBy(before)).toEqual({ effect: 'ADMIT', digest: first?.toString('hex') });
  });

  it.each<[string, () => IntakeItem]>([
    ['names another tenant', () => itemWith({ tenant_id: 'somebody-else' })],
    ['has a member that its schema does not know', () => itemWith({ approved: true })],
  ])('is never an accepted request that %s', async (_, make) => {
    const id = await accepted(make());
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(id)).toMatchObject({ state: 'refused', code: 'processing_failed' });
  });

  it('is never a stored request that was exchanged for another good one', async () => {
    const id = await accepted(registry.item());
    await db.sql`
      update svc.intake set request = ${Buffer.from(registry.item().request)}
      where replace(proof_id::text, '-', '') = ${id}`;
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(id)).toMatchObject({
      state: 'refused',
      code: 'processing_failed',
      detail: expect.stringContaining('hash') as string,
    });
  });
});

describe('workers beside each other', () => {
  it('append one after the other, without a gap, and none fails for it', async () => {
    const ids = [await accepted(registry.item()), await accepted(registry.item())];
    const lock = await holdAppendLock(db.sql);
    const working = ids.map((id) => processAdmissions(registry.admit, [id]));
    await untilWaiting(db.sql, 2);
    await lock.commit();
    await Promise.all(working);
    const settled = await registry.settledIn(ids);
    const indexes = ids.map((id) => {
      const one = settled.get(id);
      return one?.state === 'proved' ? one.leafIndex : -1;
    });
    expect(indexes.sort((a, b) => a - b)).toEqual([lock.size, lock.size + 1]);
  });

  it('do not set aside what another has proved meanwhile', async () => {
    const id = await accepted(registry.item());
    const late: typeof registry.admit = {
      ...registry.admit,
      policy: async () => {
        await processAdmissions(registry.admit, [id]);
        throw new IntakeMismatchError('as this worker read it');
      },
    };
    await processAdmissions(late, [id]);
    expect(await stateOf(id)).toMatchObject({ state: 'proved' });
    expect(
      await db.sql`select from svc.refusal where replace(proof_id::text, '-', '') = ${id}`,
    ).toHaveLength(0);
  });

  it('do not append what another has refused meanwhile', async () => {
    const id = await accepted(registry.item());
    const before = await treeSize(registry.engine);
    const late: typeof registry.admit = {
      ...registry.admit,
      policy: async (digest) => {
        await processAdmissions({ ...registry.admit, laneLocked: true }, [id]);
        return registry.admit.policy(digest);
      },
    };
    await processAdmissions(late, [id]);
    expect(await stateOf(id)).toMatchObject({ state: 'refused', code: 'lane_locked' });
    expect(await treeSize(registry.engine)).toBe(before);
  });
});

describe('a failure that says nothing about the admission leaves it waiting', () => {
  let waiting: string;
  beforeEach(async () => {
    waiting = await accepted(registry.item());
  });
  const isProvedLater = async () => {
    expect(await stateOf(waiting)).toBeUndefined();
    await processAdmissions(registry.admit, [waiting]);
    expect(await stateOf(waiting)).toMatchObject({ state: 'proved' });
  };

  it.each([
    ['a serialization failure', '40001'],
    ['a deadlock', '40P01'],
    ['a lock that was not had in time', '55P03'],
  ])('%s', async (_, code) => {
    await failAppends(code);
    try {
      await expect(processAdmissions(registry.admit, [waiting])).rejects.toMatchObject({ code });
    } finally {
      await failAppends(null);
    }
    await isProvedLater();
  });

  it('a database that is away while its policy is read', async () => {
    const away = new DatabaseUnavailableError('away');
    const cut = { ...registry.admit, policy: () => Promise.reject(away) };
    await expect(processAdmissions(cut, [waiting])).rejects.toMatchObject({
      cause: away,
      ids: new Set([waiting]),
    });
    await isProvedLater();
  });

  it('a connection that breaks while it waits for the append lock', async () => {
    const lock = await holdAppendLock(db.sql);
    const working = processAdmissions(registry.admit, [waiting]);
    const broken = expect(working).rejects.toThrow(DatabaseUnavailableError);
    for (const pid of await untilWaiting(db.sql)) {
      await db.sql`select pg_terminate_backend(${pid}::int)`;
    }
    await broken;
    await lock.commit();
    await isProvedLater();
  });

  it('a lane that this worker does not know', async () => {
    // As a newer version accepts them, beside which this one still runs.
    const id = await accepted(registry.item());
    await db.sql`alter table svc.intake drop constraint intake_lane_check`;
    await db.sql`update svc.intake set lane = 3 where replace(proof_id::text, '-', '') = ${id}`;
    await expect(processAdmissions(registry.admit, [id, waiting])).rejects.toMatchObject({
      cause: expect.any(UnknownLaneError) as Error,
      ids: new Set([id]),
    });
    expect(await stateOf(id)).toBeUndefined();
    expect(await stateOf(waiting)).toMatchObject({ state: 'proved' });
    await db.sql`delete from svc.intake_pending where replace(proof_id::text, '-', '') = ${id}`;
  });

  it('a policy set that this worker cannot use', async () => {
    const digest = await activePolicy(registry.engine);
    const change = (expression: string) =>
      db.sql.begin(async (tx) => {
        await tx`set local session_replication_role = replica`;
        await tx.unsafe(`update svc.policy_set set files = ${expression} where digest = $1`, [
          digest,
        ] as never);
      });
    await change(`jsonb_set(files, '{policies,more}', '"permit (principal, action, resource);"')`);
    const anew = { ...registry.admit, policy: policyCache(registry.admit.sql) };
    await expect(processAdmissions(anew, [waiting])).rejects.toMatchObject({
      cause: expect.any(PolicySetError) as Error,
    });
    await change(`files #- '{policies,more}'`);
    await isProvedLater();
  });
});

describe('gates hold for what is accepted and not yet appended', () => {
  let waiting: string;
  beforeEach(async () => {
    const item = registry.item();
    waiting = item.proofId;
    await acceptIntake(registry.engine, [item]);
  });
  afterEach(() => processAdmissions(registry.admit, [waiting]));
  const outcome = () => stateOf(waiting);

  it('the lane lock', async () => {
    await setLane(registry.admin, 'sandbox', false);
    await processAdmissions(registry.admit, [waiting]);
    await setLane(registry.admin, 'sandbox', true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'lane_locked' });
  });

  it("the environment's lock", async () => {
    await processAdmissions({ ...registry.admit, laneLocked: true }, [waiting]);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'lane_locked' });
  });

  it('the allowlist', async () => {
    await setAllowlisted(registry.admin, TENANT, false);
    await processAdmissions(registry.admit, [waiting]);
    await setAllowlisted(registry.admin, TENANT, true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'tenant_not_allowlisted' });
  });

  it('the lane of its own environment, whatever the other one is', async () => {
    const tenantId = 'acme-live';
    await createTenant(registry.admin, { tenantId, environment: 'live' });
    await setAllowlisted(registry.admin, tenantId, true);
    const [tenant] = await registry.admin<{ tenant_no: number }[]>`
      select tenant_no from svc.tenant where tenant_id = ${tenantId}`;
    const tenantNo = tenant!.tenant_no;
    const item = () => ({
      ...itemWith({ tenant_id: tenantId }),
      tenantNo,
      environment: 'live' as const,
    });
    const locked = await accepted(item());
    await processAdmissions(registry.admit, [locked]);
    expect(await stateOf(locked, tenantNo)).toMatchObject({
      state: 'refused',
      code: 'lane_locked',
    });

    await setLane(registry.admin, 'live', true);
    const open = await accepted(item());
    await processAdmissions(registry.admit, [open]);
    await setLane(registry.admin, 'live', false);
    const { environment, policy } = await aepOf(open, tenantNo);
    expect(environment).toBe('live');
    expect(await readPolicyInput(registry.admit.sql, fromHex(policy.input_hash))).toMatchObject({
      tenant: { tenant_id: tenantId, environment: 'live' },
      environment: 'live',
    });
  });

  it('a gate that closes while a worker waits for the append lock', async () => {
    const lock = await holdAppendLock(db.sql);
    const working = processAdmissions(registry.admit, [waiting]);
    await untilWaiting(db.sql);
    await lock.tx`update svc.lane set open = false where environment = 'sandbox'`;
    await lock.commit();
    await working;
    await setLane(registry.admin, 'sandbox', true);
    expect(await outcome()).toMatchObject({ state: 'refused', code: 'lane_locked' });
  });

  it.each([
    ['a lane', () => setLane(registry.admin, 'sandbox', true)],
    ['the allowlist', () => setAllowlisted(registry.admin, TENANT, true)],
  ])('a change of %s waits for the append under way', async (_, change) => {
    const lock = await holdAppendLock(db.sql);
    const order: string[] = [];
    const changing = change().then(() => order.push('changed'));
    await untilWaiting(db.sql);
    order.push('appended');
    await lock.commit();
    await changing;
    expect(order).toEqual(['appended', 'changed']);
  });

  it('the signing key, and the work waits for a key that counts', async () => {
    const stranger = { ...registry.admit, keyId: 'A'.repeat(43) };
    await expect(processAdmissions(stranger, [waiting])).rejects.toThrow(SigningKeyInactiveError);
    expect(await outcome()).toBeUndefined();
    await processAdmissions(registry.admit, [waiting]);
    expect(await outcome()).toMatchObject({ state: 'proved' });
  });

  it('the sweeper finds what waits, and only that', async () => {
    const enqueued: string[][] = [];
    const options = {
      sql: registry.admit.sql,
      log: registry.admit.log,
      enqueue: (ids: string[]) => {
        enqueued.push(ids);
        return Promise.resolve();
      },
      groupSize: 100,
    };
    expect(await sweep({ ...options, olderThanMs: 60_000 })).toEqual({ enqueued: 0, next: null });
    expect(await sweep({ ...options, olderThanMs: 0 })).toEqual({ enqueued: 1, next: null });
    expect(enqueued).toEqual([[waiting]]);
    await processAdmissions(registry.admit, [waiting]);
    expect(await pendingOlderThan(registry.engine, 0, 10)).toEqual([]);
  });

  it('the sweeper sends all of it, the oldest first, in groups', async () => {
    const ids = [waiting];
    for (let age = 1; age <= 4; age += 1) {
      const id = await accepted(registry.item());
      ids.unshift(id);
      await db.sql`
        update svc.intake_pending set accepted_at = accepted_at - ${`${age} minutes`}::interval
        where replace(proof_id::text, '-', '') = ${id}`;
    }
    const { sql, log } = registry.admit;
    const groups: string[][] = [];
    const enqueue = (group: string[]) => Promise.resolve(groups.push(group));
    await sweep({ sql, log, enqueue, olderThanMs: 0, groupSize: 2 });
    expect(groups).toEqual([ids.slice(0, 2), ids.slice(2, 4), ids.slice(4)]);
    expect(await pendingOlderThan(registry.admit.sql, 0, 1)).toMatchObject([{ proofId: ids[0] }]);
    await processAdmissions(registry.admit, ids);
  });

  it('a running worker finds what the queue never had, also after a sweep that failed', async () => {
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
      { ...WORKER_DEFAULTS, groupsAtOnce: 1, sweepEveryMs: 20, sweepOlderThanMs: 0 },
    );
    try {
      await eventually(() => Promise.resolve(failed.length > 0 ? true : null), 10_000, 'a sweep');
      await rename('hidden', 'intake_pending');
      const settled = await eventually(
        async () => (await outcome()) ?? null,
        10_000,
        'what was swept',
      );
      expect(settled).toMatchObject({ state: 'proved' });
    } finally {
      await worker.close();
    }
  });
});

describe('a worker is not silent about a job that neither ends nor fails', () => {
  const config = (role: string) => ({ databaseUrl: db.urlFor(role), redisUrl: null });
  const jobs: [string, () => Promise<string>][] = [
    [
      'of admissions',
      () => adding(openAdmitQueue(config('svc_engine')), (queue, ids) => queue.add(ids)),
    ],
    [
      'of revocations',
      () => adding(openAdmitQueue(config('svc_engine')), (queue, ids) => queue.addRevocations(ids)),
    ],
    [
      'of a batch',
      () => adding(openBatchQueue(config('svc_worker')), (queue, ids) => queue.add(ids)),
    ],
  ];

  async function adding<Q extends { close(): Promise<void> }>(
    queue: Q,
    add: (queue: Q, ids: string[]) => Promise<string>,
  ): Promise<string> {
    try {
      return await add(queue, [registry.item().proofId]);
    } finally {
      await queue.close();
    }
  }

  it.each(jobs)('%s', async (_, add) => {
    const holder = await db.sql.reserve();
    await holder.unsafe(
      'begin; lock table svc.intake_pending, svc.revocation_pending in access exclusive mode',
    );
    const hung: Error[] = [];
    const worker = startAdmitWorker(
      registry.admit,
      config('svc_worker'),
      { ...WORKER_DEFAULTS, hungMs: 100 },
      (error) => hung.push(error),
    );
    try {
      await add();
      await eventually(() => Promise.resolve(hung[0] ?? null), 10_000, 'the watchdog');
      expect(hung).toEqual([expect.any(HungError)]);
    } finally {
      await holder.unsafe('rollback');
      holder.release();
      await worker.close();
    }
  });
});

describe('a compromised key', () => {
  it('signs nothing more', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'svc-key-'));
    const signer = createSigningKey(join(folder, 'key.pem'));
    await rm(folder, { recursive: true });
    const keyId = jwkThumbprint(nativeSha256, signer.publicKey);
    const key = { keyId, publicKey: toBase64Url(signer.publicKey) };
    const admit = { ...registry.admit, signer, keyId };
    await appendKeyChange(registry.admin, nativeSha256, { ...key, change: 'activate' });
    const first = await accepted(registry.item());
    await processAdmissions(admit, [first]);
    expect(await stateOf(first)).toMatchObject({ state: 'proved' });

    const fromIndex = await treeSize(registry.engine);
    await appendKeyChange(registry.admin, nativeSha256, {
      ...key,
      change: 'compromise',
      fromIndex,
    });
    const id = await accepted(registry.item());
    await expect(processAdmissions(admit, [id])).rejects.toThrow(/compromised/);
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(id)).toMatchObject({ state: 'proved' });
  });
});

describe('a retired key', () => {
  it('signs nothing more', async () => {
    const { keyId, signer } = registry.admit;
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await appendKeyChange(registry.admin, nativeSha256, {
      keyId,
      publicKey: toBase64Url(signer.publicKey),
      change: 'retire',
    });
    await expect(processAdmissions(registry.admit, [item.proofId])).rejects.toThrow(/retired/);
    expect(await pendingDepth(registry.engine, 10)).toBe(1);
  });
});
