import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { toHex, utf8 } from '#protocol/bytes';
import { commitmentsOf, REQUEST_HASH, saltsFrom } from '#protocol/commitments';
import { canonicalBytes } from '#protocol/json';
import { formatTime } from '#protocol/time';
import { CEDAR_VERSION, makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { nativeSha256 } from '#runtime/crypto/node';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { activatePolicy, activePolicy, storePolicySet } from '#sql/admissions/policies';
import { asTenants, transaction } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { readProof } from '#sql/proofs/read';
import { putFixture, setValidity } from '#sql/tenants/administration';
import { processAdmissions } from '#workers/admit/process';
import { accepted, aepOf, itemWith, stateOf } from '../fixtures/admissions.js';
import { admissionEnvelope, agentItem, outcomeEnvelope } from '../fixtures/agent.js';
import { issueKey } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
const defaultPolicy = join(packageRoot, 'policy', 'default');

/** Stores an item without the engine's checks, changes its row, processes it, and returns its outcome. */
async function settled(item: IntakeItem, change?: string) {
  const id = await accepted(registry, item);
  if (change !== undefined) {
    await db.sql.unsafe(`update svc.intake set ${change} where proof_id = '${id}'`);
  }
  await processAdmissions(registry.admit, [id]);
  return stateOf(registry, id);
}

const PARENT_ABSENT = { state: 'refused', code: 'parent_not_found' };
const MISFIT = { state: 'refused', code: 'processing_failed' };

describe('admission', () => {
  it('gets one proof when it is delivered concurrently', async () => {
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
    expect((await registry.readOutcomes(ids)).size).toBe(20);
  });

  it('is left to a later group when its group has no more time to prepare it', async () => {
    const items = Array.from({ length: 3 }, () => registry.item());
    await acceptIntake(registry.engine, items);
    const [first, second, third] = items.map((item) => item.proofId);
    const ids = [third!, first!, second!];
    const process = (limitMs: number) =>
      processAdmissions(registry.admit, ids, NO_REQUEST_IDS, limitMs);
    expect(await process(Number.MIN_VALUE)).toEqual([first, second]);
    expect([...(await registry.readOutcomes(ids)).keys()]).toEqual([third]);
    expect(await process(10_000)).toEqual([]);
    expect((await registry.readOutcomes(ids)).size).toBe(3);
  });

  it('is not signed unless it was accepted', async () => {
    const before = await treeSize(registry.engine);
    await processAdmissions(registry.admit, [registry.item().proofId]);
    expect(await treeSize(registry.engine)).toBe(before);
  });

  it('is rejected when its stored request was changed, and the others in its group are signed', async () => {
    const items = [registry.item(), registry.item(), registry.item()];
    await acceptIntake(registry.engine, items);
    const ids = items.map((item) => item.proofId);
    // The replacement is valid, so only the hash stored at acceptance reveals the change.
    const { request } = registry.item({ action: 'OTHER' });
    await db.sql`
      update svc.intake set request = ${Buffer.from(request)}
      where replace(proof_id::text, '-', '') = ${ids[1]!}`;
    await processAdmissions(registry.admit, ids);
    const outcomes = await registry.readOutcomes(ids);
    expect(ids.map((id) => outcomes.get(id))).toMatchObject([
      { state: 'proved' },
      MISFIT,
      { state: 'proved' },
    ]);
  });

  it('is rejected when its stored request is not canonical, although the hash matches', async () => {
    const { request, ...item } = registry.item();
    const spelled = Buffer.from(` ${Buffer.from(request).toString()}`);
    const requestHash = nativeSha256(spelled);
    expect(await settled({ ...item, request: spelled, requestHash })).toMatchObject({
      state: 'refused',
    });
  });
});

it('admission > gets one outcome: it cannot be pending again, and its row states exactly whether it was rejected', async () => {
  const [proved = ''] = await registry.admitAll([registry.item()]);
  const pending = await accepted(registry, registry.item());
  const rejected = await accepted(registry, registry.item());
  await processAdmissions({ ...registry.admit, admissionsPaused: true }, [rejected]);
  for (const id of [proved, rejected]) {
    const again = asTenants(
      registry.engine,
      [registry.tenantNo],
      (tx) => tx`insert into svc.intake_pending values (${id}::uuid, now())`,
    );
    await expect(again).rejects.toThrow(/has an outcome/);
  }
  await db.sql`insert into svc.refusal (proof_id, code, detail) values (${proved}::uuid, 'x', '')`;
  for (const [id, isRejected] of [[proved, true], [pending, true], [rejected, false]] as const) {
    const changed = registry.admit.sql`
      update svc.intake set refused = ${isRejected} where proof_id = ${id}::uuid`;
    await expect(changed).rejects.toThrow(/is not refused/);
  } // prettier-ignore
});

it.each([
  ['another environment', `environment = 'live'`],
  ['a time in the future', `accepted_at = now() + interval '1 year'`],
  ['a time before its policy was active', `accepted_at = now() - interval '1 year'`],
])('columns stored at acceptance > are checked before signing: %s', async (_, change) => {
  expect(await settled(registry.item(), change)).toMatchObject(MISFIT);
});

it('columns stored at acceptance > are checked before signing: a policy set replaced more than 10 minutes before', async () => {
  const files = await readPolicyFolder(defaultPolicy);
  const policies = { all: 'permit (principal, action, resource);' };
  const old = await makePolicySet({ ...files, policies });
  await storePolicySet(registry.admin, old);
  await db.sql`
    insert into svc.policy_activation (digest, active_from)
    select digest, now() - hours * interval '1 hour'
    from (values (${old.digest}, 2), (${await activePolicy(db.sql)}, 1)) as of(digest, hours)`;
  const acceptedUnder = (digest: Uint8Array, minutesAgo: number) =>
    // As the owner: the database accepts no such time from an engine.
    transaction(db.sql, async (tx) => {
      const item = registry.item();
      await tx`
        insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash, accepted_at,
          seed, policy_digest)
        values (${item.proofId}, ${registry.tenantNo}, 1, 'sandbox', ${Buffer.from(item.request)},
          ${item.requestHash}, now() - ${minutesAgo} * interval '1 minute', ${item.seed}, ${digest})`;
      await tx`insert into svc.intake_pending (proof_id, accepted_at) values (${item.proofId}, now())`;
      return item.proofId;
    });
  const proves = { state: 'proved' };
  for (const [minutesAgo, outcome] of [[90, proves], [51, proves], [49, MISFIT]] as const) {
    const id = await acceptedUnder(old.digest, minutesAgo);
    await processAdmissions(registry.admit, [id]);
    expect(await stateOf(registry, id)).toMatchObject(outcome);
  }
}); // prettier-ignore

const keyNoOf = async (apiKey: string): Promise<number> => {
  const [row] = await db.sql<{ key_no: number }[]>`
    select key_no from svc.api_key where key_id = ${apiKey.slice(7, 19)}`;
  return row?.key_no ?? 0;
};

const proved = async (envelope: Record<string, unknown>): Promise<string> => {
  const item = agentItem(registry, envelope);
  expect(await settled(item)).toMatchObject({ state: 'proved', lane: 2 });
  return item.proofId;
};

describe('worker rejects an agent envelope', () => {
  it('whose parent is missing or belongs to another tenant', async () => {
    const absent = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    expect(await settled(agentItem(registry, outcomeEnvelope(absent)))).toMatchObject(
      PARENT_ABSENT,
    );
    const follows = admissionEnvelope({ parent_proof_id: absent });
    expect(await settled(agentItem(registry, follows))).toMatchObject(PARENT_ABSENT);

    const parent = await proved(admissionEnvelope());
    const stolen = agentItem(registry, outcomeEnvelope(parent, { tenant_id: 'rival' }));
    stolen.tenantNo = await registry.addTenant('rival');
    await acceptIntake(registry.engine, [stolen]);
    await processAdmissions(registry.admit, [stolen.proofId]);
    const refused = await db.sql`
      select code from svc.refusal where proof_id = ${stolen.proofId}::uuid`;
    expect(refused).toMatchObject([{ code: 'parent_not_found' }]);
  });

  it('whose parent was denied or is an outcome', async () => {
    const denied = await proved(admissionEnvelope({ action: 'DELETE_AUDIT_LOG' }));
    expect(await settled(agentItem(registry, outcomeEnvelope(denied)))).toMatchObject(MISFIT);
    const outcome = await proved(outcomeEnvelope(await proved(admissionEnvelope())));
    expect(await settled(agentItem(registry, outcomeEnvelope(outcome)))).toMatchObject(MISFIT);
  });
});

it('worker > denies an agent envelope whose facts do not fit the pinned policy set, as after a change of the active set', async () => {
  const facts = { amount: { decimal: '480.00' }, vip: true };
  const item = agentItem(registry, admissionEnvelope({ facts }));
  expect(await settled(item)).toMatchObject({
    state: 'proved',
    effect: 'DENY',
    reasons: ['fact.amount', 'fact.vip'],
  });
});

describe('API key stored with an admission', () => {
  const refused = { state: 'refused', code: 'api_key_revoked' };

  it('must exist and belong to the tenant', async () => {
    const item = (keyNo: number) => ({ ...registry.item(), keyNo });
    expect(await settled(item(await keyNoOf(await issueKey(registry))))).toMatchObject({
      state: 'proved',
    });
    expect(await settled(item(999_999))).toMatchObject(refused);
    await registry.addTenant('stranger');
    const strangers = await issueKey(registry, { tenantId: 'stranger' });
    expect(await settled(item(await keyNoOf(strangers)))).toMatchObject(refused);
  });

  it('rejects the admission when `bound` or the agent contradicts its restriction', async () => {
    const keyNo = await keyNoOf(await issueKey(registry, { restriction: { agent_id: 'agent-7' } }));
    const own = () => ({ ...agentItem(registry, admissionEnvelope()), keyNo });
    expect(await settled(own())).toMatchObject({ state: 'proved' });
    const another = agentItem(registry, admissionEnvelope({ agent: { id: 'agent-8' } }));
    for (const item of [
      { ...another, keyNo },
      { ...registry.item(), keyNo },
    ]) {
      expect(await settled(item)).toMatchObject(MISFIT);
    }
    for (const item of [own(), agentItem(registry, admissionEnvelope())]) {
      expect(await settled(item, 'bound = not bound')).toMatchObject(MISFIT);
    }
  });
});

describe('signed proof', () => {
  const noEnd = { proof: null, certificate: null, passport: null, trust: null };

  it('uses the policy, fixture and validity that were stored at acceptance', async () => {
    const content = utf8('{"chain":1}');
    const fixtureHash = nativeSha256(content);
    await putFixture(registry.admin, { fixtureRef: 'fixture-known', fixtureHash, content });
    const seconds = { proof: 4000, passport: 3000, certificate: 2000, trust: 1000 };
    await setValidity(registry.admin, TENANT, seconds);
    const item = registry.item({ proof_chain_fixture_ref: 'fixture-known' });
    const id = await accepted(registry, item);
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
    const saltOf = saltsFrom(nativeSha256, item.seed);
    const aep = await aepOf(registry, id);
    expect(aep).toMatchObject({
      proof_id: id,
      tenant_id: TENANT,
      environment: 'sandbox',
      ...commitmentsOf(nativeSha256, [
        [saltOf(REQUEST_HASH), REQUEST_HASH, toHex(item.requestHash)],
      ]),
      policy: { digest: (await activePolicy(registry.engine))?.toString('hex') },
      evidence: { fixture_ref: 'fixture-known', fixture_hash: toHex(fixtureHash) },
      valid_until: ends,
      accepted_at: formatTime(proof!.acceptedAt),
      salt: saltOf('aep'),
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

  it('contains the salted hash of the policy input', async () => {
    const item = registry.item({
      action: 'SEND_REPORT',
      proof_chain_fixture_ref: 'fixture-known',
    });
    const [id = ''] = await registry.admitAll([item]);
    const aep = await aepOf(registry, id);
    const input = {
      schema_version: 'svc.policy.input/1.1',
      salt: saltsFrom(nativeSha256, item.seed)('input'),
      tenant: { tenant_id: TENANT, environment: 'sandbox' },
      environment: 'sandbox',
      lane: 'execute',
      action: 'SEND_REPORT',
      agent: null,
      tool: null,
      fixture: { ref: 'fixture-known', hash: aep.evidence.fixture_hash },
      facts: {},
      approval: null,
      budgets: {},
    };
    expect(toHex(nativeSha256(canonicalBytes(input)))).toBe(aep.policy.input_hash);
  });

  it('uses the policy set that was active at acceptance', async () => {
    const first = await activePolicy(registry.engine);
    const none = await makePolicySet({
      schema: (await readPolicyFolder(defaultPolicy)).schema,
      policies: {},
      sentences: {},
    });
    await storePolicySet(registry.admin, none);
    const decidedBy = async (id: string) => {
      await processAdmissions(registry.admit, [id]);
      const { decision, policy } = await aepOf(registry, id);
      return { effect: decision.effect, digest: policy.digest };
    };
    // An activation takes effect at the next millisecond, the precision of the column.
    const begun = () => sleep(2);
    const before = await accepted(registry, registry.item());
    // One activation is due in an hour, two are due now: the second of these two is in force.
    await db.sql`
      insert into svc.policy_activation (digest, active_from)
      values (${first}, now() + interval '1 hour')`;
    expect(await activePolicy(registry.engine)).toEqual(first);
    await db.sql`
      insert into svc.policy_activation (digest) values (${first}), (${none.digest})`;
    await begun();
    expect(await activePolicy(registry.engine)).toEqual(none.digest);
    const between = await accepted(registry, registry.item());
    await activatePolicy(registry.admin, first!);
    await begun();
    const after = await accepted(registry, registry.item());

    expect(await decidedBy(after)).toEqual({ effect: 'ADMIT', digest: first?.toString('hex') });
    expect(await decidedBy(between)).toEqual({
      effect: 'DENY',
      digest: none.digest.toString('hex'),
    });
    expect(await decidedBy(before)).toEqual({ effect: 'ADMIT', digest: first?.toString('hex') });
  });

  it.each<[string, () => IntakeItem]>([
    ['names another tenant', () => itemWith(registry, { tenant_id: 'other-tenant' })],
    ['has a member that its schema does not know', () => itemWith(registry, { approved: true })],
  ])('is never created for an accepted request that %s', async (_, make) => {
    expect(await settled(make())).toMatchObject(MISFIT);
  });
});
