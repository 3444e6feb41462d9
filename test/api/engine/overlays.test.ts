import { describe, expect } from 'vitest';
import { activateWithOverlays } from '#policy/overlays';
import { makePolicySet } from '#policy/policy-set';
import { shippedPolicy } from '#programs/shipped-policy';
import { toHex } from '#protocol/bytes';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import { asTenants, transaction } from '#sql/db/transaction';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { beforeRow } from '../../fixtures/database.js';
import { headersFor, workBatches } from '../../fixtures/engine.js';
import { holdLock, untilWaiting } from '../../fixtures/hold-lock.js';
import {
  activationBody,
  NO_DELETIONS,
  overlayBody,
  overlayCase,
  overlayTestBody,
} from '../../fixtures/overlays.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { activated, admit, deactivate, overlayTest, stored } from './overlay-setup.js';
import { keyIdOf, replayOf, type Setup } from './setup.js';

const it = overlayTest();
const shipped = await shippedPolicy();

const proofIn = (json: Record<string, unknown>): string =>
  String(((json['receipt'] ?? json) as Record<string, unknown>)['registry_proof_id']);

/** Stores and activates the operator's set with an additional rule, and optionally with a changed schema. */
async function activateBase(
  { registry }: Setup,
  name: string,
  from: Date | null = null,
  schema = shipped.files.schema,
) {
  const policies = {
    ...shipped.files.policies,
    [name]: `forbid (principal, action, resource == Svc::Operation::"${name}");`,
  };
  const set = await makePolicySet({ ...shipped.files, schema, policies });
  await storePolicySet(registry.admin, set);
  const made = await transaction(registry.admin, (tx) => activateWithOverlays(tx, set, from));
  return { ...made, digest: set.digest };
}

const WITH_FACT = shipped.files.schema.replace('facts: {}', 'facts: { risk?: Long }');

describe('an overlay', () => {
  it('denies actions of its tenant only, from its activation on, and is recorded in the proof', async ({
    setup,
  }) => {
    const { db, get, post } = setup;
    const admitted = await admit(setup);
    expect(admitted.status).toBe(200);
    const id = await stored(setup);
    const tested = await post(
      `/v1/overlays/${id}/test`,
      overlayTestBody({ cases: [overlayCase()], since: '2020-01-01T00:00:00.000Z' }),
    );
    expect(tested.json).toMatchObject({
      cases: {
        failed: 0,
        covered: { 'overlay.no-deletions': 1 },
        results: [{ decided: { effect: 'DENY', reasons: ['overlay.no-deletions'] } }],
      },
      simulation: {
        complete: true,
        admissions: 1,
        denied: 1,
        changes: [{ proof_id: proofIn(admitted.json), simulated: 'DENY [overlay.no-deletions]' }],
      },
    });
    expect((await admit(setup)).status).toBe(200);

    expect(await activated(setup)).toBe(id);
    const denied = await admit(setup);
    expectProblem(denied, 403, 'policy_denied');
    expect(denied.json).toMatchObject({
      reasons: ['overlay.no-deletions'],
      detail: 'Deletions are made by hand.',
    });
    const item = admissionEnvelope({ action: 'DELETE_RECORD' });
    const batch = await post('/v1/batches', [item]);
    await setup.engine.worker.work();
    const results = `/v1/batches/${String(batch.json['batch_id'])}/results`;
    await expect
      .poll(async () => (await get(results)).json)
      .toMatchObject({ results: [{ problem: { detail: 'Deletions are made by hand.' } }] });

    const other = await setup.tenant('neighbour');
    const theirs = admissionEnvelope({ action: 'DELETE_RECORD', tenant_id: 'neighbour' });
    const admittedThere = await post('/v1/agent/admissions', theirs, other);
    expect(admittedThere.status).toBe(200);

    const proofId = proofIn(denied.json);
    await setup.publish();
    const { json } = await get(`/v1/proofs/${proofId}/export`);
    const { policy } = json['aep'] as { policy: { digest: string } };
    expect(policy.digest).toBe(tested.json['policy_digest']);
    expect((await post('/v1/proofs/verify', json)).json).toMatchObject({ status: 'VALID' });
    const foreign = await replayOf(setup, proofIn(admittedThere.json), policy.digest, other);
    expectProblem(foreign, 422, 'policy_unknown');
    const replay = await replayOf(setup, proofId, shipped.digest.toString('hex'));
    expect(replay.json).toMatchObject({
      result: 'match',
      counterfactual: { decision: { effect: 'ADMIT' }, differs: true },
    });
    const actor = `key ${keyIdOf(setup.key)}`;
    const acts = await db.sql`
      select object, act, actor, db_role from svc.audit where act like 'overlay %' order by audit_id`;
    const act = { actor, db_role: 'svc_engine' };
    expect(acts).toEqual([
      { ...act, object: 'overlay', act: 'overlay store' },
      { ...act, object: 'tenant', act: 'overlay activate' },
    ]);

    await deactivate(setup);
    expect((await admit(setup)).status).toBe(200);
    expect((await get('/v1/overlays')).json).toMatchObject({
      overlays: [{ overlay_id: id, active: false }],
    });
  });

  it('applies if it is active at acceptance, even when another overlay is activated before the decision', async ({
    setup,
  }) => {
    await activated(setup);
    const denied = await setup.whileItWaits(
      () => admit(setup),
      () => deactivate(setup),
    );
    expect(denied.json).toMatchObject({ reasons: ['overlay.no-deletions'] });
    const admitted = await setup.whileItWaits(
      () => admit(setup),
      () => activated(setup),
    );
    expect(admitted.status).toBe(200);
  });

  it('stays active when another overlay is deactivated', async ({ setup }) => {
    await activated(setup);
    const other = await stored(setup, { other: NO_DELETIONS });
    const path = `/v1/overlays/${other}/deactivate`;
    const reply = await setup.engine.call({ path, headers: headersFor(setup.key) });
    expect(reply.json).toMatchObject({ overlay_id: other, active: false });
    expect((await admit(setup)).json).toMatchObject({ reasons: ['overlay.no-deletions'] });
  });

  it('also applies under policy sets that the operator activates or schedules later', async ({
    setup,
  }) => {
    const scheduled = await activateBase(setup, 'LATER', new Date(Date.now() + 86_400_000));
    await activated(setup);
    const sets = await setup.db.sql`select from svc.overlay_set where base = ${scheduled.digest}`;
    expect(sets).toHaveLength(1);
    expect(await activateBase(setup, 'NEXT')).toMatchObject({ unfit: [] });
    expect((await admit(setup)).json).toMatchObject({ reasons: ['overlay.no-deletions'] });
    expect((await admit(setup, 'NEXT')).json).toMatchObject({ reasons: ['NEXT'] });
    expect((await admit(setup, 'OTHER')).status).toBe(200);
  });

  it('denies every action while a rule is invalid under the operator’s policy set', async ({
    setup,
  }) => {
    await activateBase(setup, 'WITH_FACT', null, WITH_FACT);
    const rule = `forbid (principal, action, resource) when { context.facts has risk && context.facts.risk > 5 };`;
    const id = await stored(setup, { 'no-risk': rule, 'no-deletions': NO_DELETIONS });
    const risky = overlayCase('PAY');
    const cases = [overlayCase(), { ...risky, input: { ...risky.input, facts: { risk: 6 } } }];
    await setup.post(`/v1/overlays/${id}/activate`, activationBody(cases));
    expect((await admit(setup, 'PAY')).status).toBe(200);

    const { unfit } = await activateBase(setup, 'WITHOUT_FACT');
    expect(unfit).toEqual([{ tenant_id: TENANT, rules: ['no-risk'] }]);
    const denied = await admit(setup, 'PAY');
    expectProblem(denied, 403, 'policy_denied');
    expect(denied.json).toMatchObject({
      reasons: ['overlay.no-risk'],
      detail: expect.stringContaining('The rule no-risk of your overlay does not fit') as string,
    });
    expect((await setup.get('/v1/overlays?limit=1')).json).toMatchObject({
      overlays: [{ overlay_id: id, active: true, unfit_rules: ['no-risk'] }],
    });
    const again = await setup.post(`/v1/overlays/${id}/activate`, activationBody(cases));
    expectProblem(again, 422, 'invalid_overlay');
    await activated(setup);
    expect((await admit(setup, 'PAY')).status).toBe(200);
  });

  it('cannot be omitted by an engine that accepts an admission', async ({ setup }) => {
    const { registry, db } = setup;
    const { tenantNo } = registry;
    const rivalNo = await registry.addTenant('rival');
    await activated(setup);
    const before = await stored(setup, { other: NO_DELETIONS });
    await setup.post(`/v1/overlays/${before}/activate`, activationBody([overlayCase()]));
    await activated(setup);
    const [replaced] = await db.sql<[{ digest: Buffer }]>`
      select digest from svc.overlay_set where tenant_no = ${tenantNo} and encode(overlay, 'hex') = ${before}`;
    const accepting = (digest: Buffer, tenant = tenantNo) =>
      asTenants(
        registry.engine,
        [tenantNo, tenant],
        (tx) =>
          tx`insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
            accepted_at, seed, policy_digest)
          select gen_random_uuid(), ${tenant}, lane, environment, request, sha256(seed), now(), seed,
            ${digest} from svc.intake limit 1`,
      );
    for (const digest of [shipped.digest, replaced.digest]) {
      await expect(accepting(digest)).rejects.toThrow(/leaves out the overlay/);
    }
    for (const [digest, tenant] of [
      [replaced.digest, rivalNo],
      [Buffer.alloc(32), tenantNo],
    ] as const) {
      await expect(accepting(digest, tenant)).rejects.toThrow(/policy set .* does not exist/);
    }
  });

  it('cannot let an engine pass off another policy set as the set in force', async ({ setup }) => {
    const { registry, db } = setup;
    await activated(setup);
    const all = { all: 'permit (principal, action, resource);' };
    const permissive = await makePolicySet({ ...shipped.files, policies: all });
    await storePolicySet(registry.admin, permissive);
    const [{ set, key, overlay }] = await db.sql<[{ set: object; key: number; overlay: Buffer }]>`
      select key_no as key, o.digest as overlay, to_jsonb(s) || jsonb_build_object(
        'base', encode(s.base, 'hex'), 'digest', encode(s.digest, 'hex')) as set
      from svc.overlay_set s join svc.overlay o on o.digest = s.overlay`;
    const activating = (change: object) =>
      asTenants(registry.engine, [registry.tenantNo], async (tx) => {
        await tx`select svc.store_overlay(${key}, sha256('other'), '{}', 100)`;
        const sets = JSON.stringify([{ ...set, ...change }]);
        await tx`select svc.activate_overlay(${key}, sha256('other'), ${sets}::text::jsonb)`;
      });
    const { manifest } = permissive;
    for (const change of [
      { digest: toHex(permissive.digest), manifest },
      { digest: toHex(overlay) },
      { base: toHex(permissive.digest) },
      { policies: { 'overlay.other': NO_DELETIONS } },
    ]) {
      await expect(activating(change)).rejects.toThrow(/not that of the base with these policies/);
    }
    // Workers check that overlays only forbid by the ids of their policies.
    const widened = { ...shipped.files.policies, ...all };
    const wider = await makePolicySet({ ...shipped.files, policies: widened });
    const names = { base: toHex(shipped.digest), digest: toHex(wider.digest) };
    const widening = activating({ ...names, manifest: wider.manifest, policies: all });
    await expect(widening).rejects.toThrow(/overlay_set_policies_check/);
  });

  it('applies to a batch and an admission that are stored during its activation', async ({
    setup,
  }) => {
    const { db, get, post } = setup;
    const deletion = () => admissionEnvelope({ action: 'DELETE_RECORD' });
    const stores = [
      () => post('/v1/batches', [deletion()]),
      () => post('/v1/agent/admissions', deletion(), { 'X-Svc-Idempotency-Key': 'once' }),
    ];
    for (const store of stores) {
      await deactivate(setup);
      const held = 'perform pg_advisory_xact_lock_shared(1);';
      const remove = await beforeRow(db, 'insert on svc.intake', held);
      const release = await holdLock(db.sql, 'select pg_advisory_xact_lock(1)');
      const storing = store();
      await untilWaiting(db.sql);
      await activated(setup);
      await release();
      const { json, status } = await storing;
      await remove();
      if (json['batch_id'] === undefined)
        expect([status, json['code']]).toEqual([403, 'policy_denied']);
      else {
        await workBatches(setup.registry);
        const { counts } = (await get(`/v1/batches/${json['batch_id'] as string}`)).json;
        expect(counts).toMatchObject({ total: 1, denied: 1 });
      }
    }
  });

  it('prevents the activation of a policy set that is not combined with the overlay', async ({
    setup,
  }) => {
    await activated(setup);
    const set = await makePolicySet({ ...shipped.files, policies: {} });
    await storePolicySet(setup.registry.admin, set);
    const activation = activatePolicy(setup.registry.admin, set.digest);
    await expect(activation).rejects.toThrow(/not combined with a policy set/);
    // An admission fails as well when the combined policy set is missing.
    await setup.byHand((tx) => tx`delete from svc.overlay_set`);
    expect((await admit(setup)).status).toBe(500);
  });

  it('is combined with a policy set that is activated at the same time', async ({ setup }) => {
    const { sql } = setup.db;
    const set = await makePolicySet({ ...shipped.files, sentences: {} });
    await storePolicySet(setup.registry.admin, set);
    const other = await sql.reserve();
    await other`begin`;
    await activatePolicy(other, set.digest);
    const activating = activated(setup);
    await untilWaiting(sql);
    await other`commit`;
    other.release();
    await activating;
    expect((await admit(setup)).json).toMatchObject({ reasons: ['overlay.no-deletions'] });
  });

  it('is one of at most 500 of its tenant', async ({ setup }) => {
    const { tenantNo } = setup.registry;
    await setup.db.sql`
      insert into svc.overlay (tenant_no, digest, document, key_no)
      select ${tenantNo}, sha256(int4send(n)), '{}', 1 from generate_series((
        select count(*)::int + 1 from svc.overlay where tenant_no = ${tenantNo}), 500) as n`;
    const store = (own = {}) =>
      setup.post('/v1/overlays', overlayBody({ last: NO_DELETIONS }), own);
    expectProblem(await store(), 422, 'too_many_overlays');
    expect((await store(await setup.tenant('unlimited'))).status).toBe(201);
  });
});
