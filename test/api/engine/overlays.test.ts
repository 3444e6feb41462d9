import { describe, expect, vi } from 'vitest';
import { TENANT_CONNECTIONS } from '#api/engine/context';
import type { Call } from '#api/engine/operation';
import { MOST_SIMULATED, simulated } from '#api/engine/policy/overlay-evaluation';
import { activateWithOverlays } from '#policy/overlays';
import { makePolicySet } from '#policy/policy-set';
import { replayPolicies } from '#policy/replay';
import { shippedPolicy } from '#programs/shipped-policy';
import { BusyError, Limiter } from '#runtime/concurrency/limiter';
import { asTenants, transaction } from '#sql/db/transaction';
import { acceptIntake } from '#sql/admissions/intake';
import { activateOverlay, policiesInUse, storeOverlay } from '#sql/admissions/overlays';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import { processAdmissions } from '#workers/admit/process';
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
import { engineTest, keyIdOf, replayOf, type Setup } from './setup.js';

const it = engineTest({ rateLimit: 100_000 });
const shipped = await shippedPolicy();

type Headers = Record<string, string>;

const stored = async ({ post }: Setup, rules?: Record<string, string>, own: Headers = {}) => {
  const reply = await post('/v1/overlays', overlayBody(rules), own);
  expect(reply.status).toBe(201);
  return String(reply.json['overlay_id']);
};

/** Activates an overlay that forbids deletions. */
async function activated(setup: Setup) {
  const id = await stored(setup, { 'no-deletions': NO_DELETIONS });
  const reply = await setup.post(`/v1/overlays/${id}/activate`, activationBody([overlayCase()]));
  expect(reply.json).toMatchObject({ overlay_id: id, active: true, unfit_rules: [] });
  return id;
}

async function deactivate({ engine, get, key }: Setup): Promise<void> {
  const { overlays } = (await get('/v1/overlays')).json as unknown as {
    overlays: { overlay_id: string; active: boolean }[];
  };
  const id = overlays.find(({ active }) => active)?.overlay_id;
  if (id === undefined) return;
  const path = `/v1/overlays/${id}/deactivate`;
  const reply = await engine.call({ path, headers: headersFor(key) });
  expect(reply.json).toMatchObject({ overlay_id: id, active: false });
}

const admit = ({ post }: Setup, action = 'DELETE_RECORD') =>
  post('/v1/agent/admissions', admissionEnvelope({ action }));

const proofIn = (json: Record<string, unknown>): string =>
  String(((json['receipt'] ?? json) as Record<string, unknown>)['registry_proof_id']);

/** Stores and activates the operator's set with an additional rule, and optionally another schema. */
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

const inADay = (): Date => new Date(Date.now() + 86_400_000);

const WITH_FACT = shipped.files.schema.replace('facts: {}', 'facts: { risk?: Long }');

it.afterEach(async ({ setup }) => {
  await deactivate(setup);
});

describe('an overlay', () => {
  it('forbids from its activation on, for its tenant only, and is part of the proof', async ({
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

  it('applies on top of the operator’s next and scheduled policy sets', async ({ setup }) => {
    const scheduled = await activateBase(setup, 'LATER', inADay());
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
    const { registry } = setup;
    await activated(setup);
    const accepting = asTenants(
      registry.engine,
      [registry.tenantNo],
      (tx) =>
        tx`insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
          accepted_at, seed, policy_digest)
        select gen_random_uuid(), tenant_no, lane, environment, request, sha256(seed), now(), seed,
          ${shipped.digest} from svc.intake limit 1`,
    );
    await expect(accepting).rejects.toThrow(/leaves out the overlay/);
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
});

const FORBID = 'forbid (principal, action, resource)';

it.for([
  ['a permit', 'permit (principal, action, resource);', /can only forbid/],
  ['a sentence with U+0000', '@sentence("a\\0b") forbid (principal, action, resource);', /U\+0000/],
  ['a required approval', `@requires("approval") ${FORBID};`, /annotation @requires/],
  ['a syntax error', `${FORBID}\nwhen { context.lane = "agent" };`, /^line 2, column \d+: /],
  ['an unknown attribute', `${FORBID} when { context.nothing };`, /nothing/],
  ['a rule that can never apply', `${FORBID} when { 1 == 2 };`, /impossible/],
  ['two policies', `${FORBID}; permit (principal, action, resource);`, /unexpected token/],
  ['a template', 'forbid (principal == ?principal, action, resource);', /template/],
  [
    'a test for an attribute of an expression',
    `${FORBID} when { (if true then context else context) has tool };`,
    /use `has` only for attributes/,
  ],
  ['deep nesting', `${FORBID} when { ${'('.repeat(300)}true${')'.repeat(300)} };`, /at most/],
  ['a slow pattern', `${FORBID} when { context.lane like "${'*a'.repeat(500)}" };`, /at most/],
] as const)('POST /v1/overlays > rejects %s', async ([, text, expected], { setup }) => {
  const reply = await setup.post(
    '/v1/overlays',
    overlayBody({ 'no-deletions': NO_DELETIONS, bad: text }),
  );
  expectProblem(reply, 422, 'invalid_overlay');
  const errors = reply.json['errors'] as { pointer: string; detail: string }[];
  expect(errors.map(({ pointer }) => pointer)).toEqual(errors.map(() => '/rules/bad'));
  expect(errors[0]!.detail).toMatch(expected);
});

it('an overlay is tested and activated only with cases of its tenant that cover each rule', async ({
  setup,
}) => {
  const id = await stored(setup);
  const activate = (cases: unknown[]) =>
    setup.post(`/v1/overlays/${id}/activate`, activationBody(cases));
  const foreign = await setup.post(
    `/v1/overlays/${id}/test`,
    overlayTestBody({ cases: [overlayCase('DELETE_RECORD', 'neighbour')] }),
  );
  expectProblem(foreign, 400, 'invalid_field');
  expectProblem(await activate([overlayCase('OTHER')]), 422, 'overlay_untested');
  const idle = { ...overlayCase('OTHER'), expect: 'ADMIT' };
  const reply = await activate([idle]);
  expectProblem(reply, 422, 'overlay_untested');
  expect(reply.json['detail']).toContain('overlay.no-deletions.cedar');
  expect((await admit(setup)).status).toBe(200);
});

it('an engine can neither omit a policy set in use nor make a worker evaluate a permit', async ({
  setup,
}) => {
  const { registry, db } = setup;
  const policies = { 'overlay.x': 'permit (principal, action, resource);' };
  const sets = (await policiesInUse(registry.engine)).map(async ({ digest, files }) => {
    const combined = { ...files, policies: { ...policies, ...files.policies } };
    const { digest: own, manifest } = await makePolicySet(combined);
    return { base: digest, digest: own, manifest, policies, sentences: {}, unfit: [] };
  });
  const [key] = await db.sql<[{ no: number }]>`
    select key_no as no from svc.api_key where key_id = ${keyIdOf(setup.key)}`;
  const overlay = { digest: Buffer.alloc(32), document: '{}' };
  const whose = [registry.engine, registry.tenantNo, key.no] as const;
  expect(await storeOverlay(...whose, overlay, 100)).toBe(true);
  expect(await activateOverlay(...whose, overlay.digest, [])).toBe(false);
  expect(await activateOverlay(...whose, overlay.digest, await Promise.all(sets))).toBe(true);
  const item = registry.item({ action: 'DELETE_AUDIT_LOG' });
  await acceptIntake(registry.engine, [item]);
  const processed = processAdmissions(registry.admit, [item.proofId]);
  await expect(processed).rejects.toThrow(/can only forbid/);
  await setup.byHand((tx) => tx`delete from svc.intake_pending`);
});

it('an engine limits the evaluations of a tenant, and still serves another tenant', async ({
  setup,
}) => {
  const own = await setup.tenant('bystander');
  const [id, theirs] = [await stored(setup), await stored(setup, undefined, own)];
  const test = (overlay: string, tenant: string, headers: Headers = {}) =>
    setup.post(
      `/v1/overlays/${overlay}/test`,
      overlayTestBody({ cases: [overlayCase(undefined, tenant)] }),
      headers,
    );
  const many = Promise.all(Array.from({ length: 24 }, () => test(id, TENANT)));
  expect((await test(theirs, 'bystander', own)).status).toBe(200);
  const replies = await many;
  const busy = replies.filter(({ status }) => status !== 200);
  expect(busy.length).toBeGreaterThan(0);
  for (const reply of busy) expectProblem(reply, 503, 'tenant_busy');
  expect(busy.length).toBeLessThan(replies.length);
});

it('the test of an overlay ends while the tenant admits faster than the engine evaluates', async ({
  setup: { registry },
}) => {
  const admitSome = (count: number) =>
    registry.admitAll(Array.from({ length: count }, () => registry.item()));
  for (let n = 0; n < MOST_SIMULATED; n += 250) await admitSome(250);
  let reads = 0;
  const inTenant: Call['inTenant'] = async (work, ...args) => {
    reads += 1;
    if (reads <= 20) await admitSome(100);
    return work(registry.engine, registry.tenantNo, ...args);
  };
  const policy = await replayPolicies()(shipped);
  const { admissions } = await simulated({ inTenant }, policy, '2020-01-01T00:00:00.000Z');
  expect(admissions).toBe(MOST_SIMULATED);
});

it('a change of overlays > reads the overlay on the connection of the change', async ({
  setup,
}) => {
  /** How many more times the tenant gets a connection; each further wait fails. */
  let turns = 0;
  type Run = (this: Limiter, ...args: Parameters<Limiter['run']>) => Promise<unknown>;
  const run = Limiter.prototype.run as Run;
  const fewTurns: Run = function (...args) {
    if (this['limits'] === TENANT_CONNECTIONS && --turns < 0) throw new BusyError('no turn');
    return run.apply(this, args);
  };
  const spy = vi.spyOn(Limiter.prototype, 'run').mockImplementation(fewTurns);
  await setup
    .withEngine({}, async (engine) => {
      const change = (count: number, path: string, body?: object) => {
        turns = count;
        const headers = headersFor(setup.key);
        return engine.call({ path, headers, ...(body && { body: JSON.stringify(body) }) });
      };
      const made = await change(1, '/v1/overlays', overlayBody());
      expect(made.status).toBe(201);
      const path = `/v1/overlays/${String(made.json['overlay_id'])}`;
      const active = await change(2, `${path}/activate`, activationBody());
      expect(active).toMatchObject({ status: 200, json: { active: true } });
      const inactive = await change(2, `${path}/deactivate`);
      expect(inactive).toMatchObject({ status: 200, json: { active: false } });
    })
    .finally(() => spy.mockRestore());
});

it('cases of an overlay > get one error if the body has more than 10,000 members', async ({
  setup,
}) => {
  const reasons = Array.from({ length: 1_000 }, () => 0);
  const cases = Array.from({ length: 10 }, () => ({ ...overlayCase(), reasons }));
  const path = `/v1/overlays/${'0'.repeat(64)}/test`;
  const reply = await setup.post(path, overlayTestBody({ cases }));
  expectProblem(reply, 400, 'invalid_field');
  expect(reply.json['errors']).toEqual([
    { pointer: '', detail: 'expected at most 10000 members and items in all' },
  ]);
});
