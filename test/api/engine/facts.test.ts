import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { batchCall, batchIn, resultsOf } from '../../fixtures/batches.js';
import { headersFor, workBatches } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest } from './setup.js';

const PATH = '/v1/agent/admissions';
const AMOUNT = { decimal: '480.00' };

const files = await readPolicyFolder(join(packageRoot, 'examples', 'policies', 'refunds'));

const refund = (facts: object) => admissionEnvelope({ action: 'ISSUE_REFUND', facts });

const it = engineTest({ rateLimit: 100_000 }).extend<{
  /** Activates the example set for refunds, with changes to its schema. Returns its digest. */
  activate: (change?: (schema: string) => string) => Promise<string>;
  countIntake: () => Promise<number>;
}>({
  activate: async ({ setup: { registry } }, use) =>
    use(async (change = (schema) => schema) => {
      const set = await makePolicySet({ ...files, schema: change(files.schema) });
      await storePolicySet(registry.admin, set);
      await activatePolicy(registry.admin, set.digest);
      return set.digest.toString('hex');
    }),
  countIntake: async ({ setup: { db } }, use) =>
    use(async () => {
      const [row] = await db.sql<[{ count: number }]>`select count(*)::int from svc.intake`;
      return row.count;
    }),
});

const WRONG: [facts: Record<string, unknown>, errors: { pointer: string; detail: RegExp }[]][] = [
  [
    { amount: '480.00', currency: 'EUR' },
    [{ pointer: '/facts/amount', detail: /^must be a decimal such as/ }],
  ],
  [
    { amount: AMOUNT, currency: 978, vip: true },
    [
      { pointer: '/facts/currency', detail: /^must be a string/ },
      { pointer: '/facts/vip', detail: /^is not a fact that the active policy set declares/ },
    ],
  ],
];
const expected = (errors: (typeof WRONG)[0][1]) =>
  errors.map(({ pointer, detail }) => ({
    pointer,
    detail: expect.stringMatching(detail) as string,
  }));

describe('POST /v1/agent/admissions', () => {
  it('rejects undeclared facts with 400 and stores nothing', async ({
    activate,
    countIntake,
    setup,
  }) => {
    await activate();
    const before = await countIntake();
    for (const [facts, errors] of WRONG) {
      const reply = await setup.post(PATH, refund(facts));
      expectProblem(reply, 400, 'invalid_fact');
      expect(reply.json['errors']).toEqual(expected(errors));
    }
    expect(await countIntake()).toBe(before);
    const sound = await setup.post(PATH, refund({ amount: AMOUNT, currency: 'EUR' }));
    expect(sound.json).toMatchObject({ status: 'ADMITTED' });
  });

  it('accepts a fact while the set that declares it is active, and returns the first receipt afterwards', async ({
    activate,
    setup,
  }) => {
    await activate();
    const body = refund({ amount: AMOUNT, currency: 'EUR', vip: true });
    expectProblem(await setup.post(PATH, body), 400, 'invalid_fact');
    await activate((schema) => schema.replace('facts: {', 'facts: { vip?: Bool,'));
    const admitted = await setup.post(PATH, body);
    expect(admitted.json).toMatchObject({ status: 'ADMITTED' });
    await activate();
    // A new engine has no cached set.
    await setup.withEngine({}, async ({ call }) => {
      const send = (fields: object) =>
        call({ path: PATH, headers: headersFor(setup.key), body: JSON.stringify(fields) });
      expectProblem(await send(refund(body['facts'] as object)), 400, 'invalid_fact');
      const repeated = await send(body);
      expect(repeated.bytes).toEqual(admitted.bytes);
      expect(repeated.headers['idempotent-replayed']).toBe('true');
    });
  });
});

describe('replay', () => {
  it('evaluates the stored facts under the recorded and under another policy set', async ({
    activate,
    setup,
  }) => {
    await activate();
    const digest = await activate((schema) =>
      schema.replace(
        'currency?: String',
        'currency?: String, @required_for("ISSUE_REFUND") order?: Long',
      ),
    );
    await activate();
    const { json } = await setup.post(PATH, refund({ amount: AMOUNT, currency: 'EUR' }));
    const proof_id = json['registry_proof_id'];
    await setup.publish();
    const schema_version = 'svc.verification.verify_request/1.0';
    const verified = await setup.post('/v1/proofs/verify', { schema_version, proof_id });
    expect(verified.json).toMatchObject({ verdict: { verification_status: 'VALID' } });
    const replay = await setup.post('/v1/proofs/replay', {
      schema_version: 'svc.verification.replay_request/1.0',
      proof_id,
      policy_digest: digest,
    });
    expect(replay.json).toMatchObject({
      result: 'match',
      counterfactual: {
        decision: { effect: 'DENY', reasons: ['fact.order'] },
        sentences: {
          'fact.order':
            'The fact order is missing, or the policy set does not declare it with the stated type.',
        },
      },
    });
  });
});

it('batch > rejects only the items with undeclared facts', async ({
  activate,
  countIntake,
  setup: { engine, key, registry },
}) => {
  await activate();
  const before = await countIntake();
  const items = [
    ...WRONG.map(([facts]) => refund(facts)),
    refund({ amount: AMOUNT, currency: 'EUR' }),
  ];
  const { batch_id: batchId } = batchIn(await engine.call(batchCall(key, items)));
  expect(await countIntake()).toBe(before + 1);
  await workBatches(registry);
  expect(await resultsOf(engine, key, batchId)).toMatchObject([
    ...WRONG.map(([, errors]) => ({
      state: 'invalid',
      status: 400,
      problem: { code: 'invalid_fact', errors: expected(errors) },
    })),
    { state: 'admitted' },
  ]);
});
