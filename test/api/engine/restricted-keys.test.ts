import fc from 'fast-check';
import { describe, expect } from 'vitest';
import { matchesPattern } from '#api/engine/http/request';
import type { BatchResult } from '#protocol/schemas/batch';
import type { KeyRestriction } from '#protocol/schemas/api-keys';
import { admissionEnvelope, outcomeEnvelope } from '../../fixtures/agent.js';
import { batchCall, resultsOf } from '../../fixtures/batches.js';
import { executeBody, headersFor, workBatches } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, ofProof, type Setup } from './setup.js';

const it = engineTest();

type Fields = Record<string, unknown>;

const agent = (id: string): Fields => ({ agent: { id } });
/** Admits an action with an unrestricted key, and returns an outcome of the action. */
const outcome =
  (fields: Fields) =>
  async ({ admitOne }: Setup): Promise<Fields> =>
    outcomeEnvelope(await admitOne(), fields);

/** More names than the message of a rejection lists. */
const MANY = Array.from({ length: 32 }, (_, n) => '\u{1f512}'.repeat(100) + String(n));

/** Name, restriction, request, and the pointer of the rejection; null for an allowed request. */
const CASES: [
  string,
  KeyRestriction,
  Fields | ((setup: Setup) => Promise<Fields>),
  string | null,
][] = [
  ['its agent', { agent_id: 'a-1' }, admissionEnvelope(agent('a-1')), null],
  ['another agent', { agent_id: 'a-1' }, admissionEnvelope(agent('a-2')), '/agent/id'],
  [
    'an agent id with a common prefix',
    { agent_id: 'a*' },
    admissionEnvelope(agent('a-1')),
    '/agent/id',
  ],
  ['an outcome of its agent', { agent_id: 'a-1' }, outcome(agent('a-1')), null],
  ['an outcome of another agent', { agent_id: 'a-1' }, outcome(agent('a-2')), '/agent/id'],
  ['an execution', { agent_id: 'a-1' }, executeBody(), '/schema_version'],
  ['an execution without a tool', { tools: ['*'] }, executeBody(), '/schema_version'],
  ['an action', { actions: ['X', 'BOOK_*'] }, admissionEnvelope({ action: 'BOOK_A' }), null],
  [
    'another action',
    { actions: ['X', 'BOOK_*'] },
    admissionEnvelope({ action: 'XBOOK_' }),
    '/action',
  ],
  ['an execution of an action', { actions: ['BOOK_*'] }, executeBody({ action: 'BOOK_A' }), null],
  ['another execution', { actions: ['BOOK_*'] }, executeBody({ action: 'PAY' }), '/action'],
  ['a tool', { tools: ['a.*'] }, admissionEnvelope({ tool: 'a.b' }), null],
  ['another tool', { tools: ['a.*'] }, admissionEnvelope({ tool: 'A.b' }), '/tool'],
  ['a tool not in a long list', { tools: MANY }, admissionEnvelope(), '/tool'],
  ['no tool', { tools: ['*'] }, admissionEnvelope({ tool: undefined }), '/tool'],
  ['any tool', { actions: ['*'] }, admissionEnvelope({ tool: 'x' }), null],
  ['its environment', { environment: 'sandbox' }, executeBody(), null],
];

const countIntake = async ({ db }: Setup): Promise<number> =>
  (await db.sql`select from svc.intake`).length;

describe('restricted API key', () => {
  it.for(CASES)(
    'admits only what its restriction allows: %s',
    async ([, restriction, given, pointer], { setup }) => {
      const { engine, keyFor, registry } = setup;
      const key = await keyFor({ restriction });
      const body = typeof given === 'function' ? await given(setup) : given;
      const path = 'kind' in body ? '/v1/agent/admissions' : '/v1/intents/execute';
      const before = await countIntake(setup);
      const reply = await engine.call({
        path,
        headers: headersFor(key),
        body: JSON.stringify(body),
      });
      const batch = await engine.call(batchCall(key, [body]));
      await workBatches(registry);
      const [item] = await resultsOf(engine, key, String(batch.json['batch_id']));
      if (pointer === null) {
        expect(reply.status).toBe(200);
        expect(item).toMatchObject({ state: 'admitted' });
        return;
      }
      expectProblem(reply, 403, 'key_restricted');
      const errors = [{ pointer, detail: expect.stringMatching(/^must match one of: /) as string }];
      expect(reply.json).toMatchObject({ errors });
      // The list is cut between code points: half a surrogate pair would not be strict JSON.
      expect(reply.json['detail']).toMatch(/^This API key admits only \P{Surrogate}{1,300}$/u);
      expect(item).toMatchObject({ state: 'invalid', problem: { code: 'key_restricted', errors } });
      expect(await countIntake(setup)).toBe(before);
    },
  );

  it("is rejected when its environment differs from the tenant's", async ({ setup }) => {
    const key = await setup.keyFor({ restriction: { environment: 'live' } });
    const reply = await setup.execute('not read', headersFor(key));
    expectProblem(reply, 403, 'key_restricted');
    expectProblem(await setup.engine.call(batchCall(key, [])), 403, 'key_restricted');
    const list = { method: 'GET', path: '/v1/proofs', headers: headersFor(key) };
    expect((await setup.engine.call(list)).status).toBe(200);
  });
});

describe('acceptance of an admission', () => {
  const boundOf = async ({ db }: Setup, proofId: unknown): Promise<boolean | undefined> => {
    const rows = await db.sql.unsafe<{ bound: boolean }[]>(
      `select bound from svc.intake where ${ofProof(String(proofId))}`,
    );
    return rows[0]?.bound;
  };

  it('sets `bound` when the API key is restricted to an agent', async ({ setup }) => {
    const { engine, keyFor, registry } = setup;
    const own = await keyFor({ restriction: { agent_id: 'agent-7' } });
    const others = [await keyFor(), await keyFor({ restriction: { tools: ['*'] } })];
    for (const key of [own, ...others]) {
      const bound = key === own;
      const admitted = await setup.post(
        '/v1/agent/admissions',
        admissionEnvelope(),
        headersFor(key),
      );
      const id = String(admitted.json['registry_proof_id']);
      expect(await boundOf(setup, id)).toBe(bound);
      const reported = await setup.post(
        '/v1/agent/admissions',
        outcomeEnvelope(id),
        headersFor(key),
      );
      expect(await boundOf(setup, reported.json['registry_proof_id'])).toBe(bound);
      const keyed = { ...headersFor(key), 'X-Svc-Idempotency-Key': `bound ${key.slice(7, 19)}` };
      const named = await setup.post('/v1/agent/admissions', admissionEnvelope(), keyed);
      expect(await boundOf(setup, named.json['registry_proof_id'])).toBe(bound);
      const items = [admissionEnvelope(), admissionEnvelope()];
      const batch = await engine.call(batchCall(key, items));
      await workBatches(registry);
      const results = await resultsOf(engine, key, String(batch.json['batch_id']));
      for (const { proof_id, state } of results as (BatchResult & { proof_id: string })[]) {
        expect([state, await boundOf(setup, proof_id)]).toEqual(['admitted', bound]);
      }
    }
  });

  it('keeps `bound` of the first request if a different key repeats it', async ({ setup }) => {
    const own = await setup.keyFor({ restriction: { agent_id: 'agent-7' } });
    const other = await setup.keyFor();
    for (const [first, second, bound] of [
      [own, other, true],
      [other, own, false],
    ] as const) {
      const body = admissionEnvelope();
      const send = (key: string) => setup.post('/v1/agent/admissions', body, headersFor(key));
      const receipt = await send(first);
      const repeated = await send(second);
      expect(repeated.bytes).toEqual(receipt.bytes);
      expect(await boundOf(setup, receipt.json['registry_proof_id'])).toBe(bound);
    }
  });
});

it('matchesPattern > treats only * as a wildcard', ({ setup: _ }) => {
  const text = fc.string({ unit: fc.constantFrom('a', 'b', '.', '*', '\n'), maxLength: 8 });
  const reference = (pattern: string) =>
    new RegExp(`^${pattern.replaceAll('.', '\\.').split('*').join('[^]*')}$`);
  fc.assert(
    fc.property(text, text, (pattern, name) => {
      expect(matchesPattern(pattern, name)).toBe(reference(pattern).test(name));
    }),
    { numRuns: 2_000 },
  );
});
