import { describe, expect } from 'vitest';
import { canonicalize, type JsonValue } from '#protocol/json';
import { verifyRun, type RunResult } from '#protocol/run';
import { runPackageSchema, type RunPackage } from '#protocol/schemas/run';
import { nativeCrypto } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/intake';
import {
  admissionEnvelope,
  agentItem,
  closeEnvelope,
  newRunId,
  outcomeEnvelope,
} from '../../fixtures/agent.js';
import { workBatches, type Reply } from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, type Setup } from './setup.js';

type Fields = Record<string, unknown>;

const it = engineTest();
const AGENT = 'agent-7';

const send = ({ post }: Setup, body: Fields): Promise<Reply> => post('/v1/agent/admissions', body);
const member = (id: string, seq: number, fields: Fields = {}): Fields =>
  admissionEnvelope({ run: { id, seq }, ...fields });

async function proved(setup: Setup, body: Fields): Promise<string> {
  const reply = await send(setup, body);
  expect(reply.status).toBe(200);
  return String(reply.json['registry_proof_id']);
}

/** A closed run: an admission, a denial and an outcome. */
async function closedRun(setup: Setup) {
  const id = newRunId();
  const admitted = await proved(setup, member(id, 0, { tool_call_id: 'call_1' }));
  const denial = await send(setup, member(id, 1, { action: 'DELETE_AUDIT_LOG' }));
  const denied = String((denial.json['receipt'] as Fields)['registry_proof_id']);
  const outcome = await proved(setup, outcomeEnvelope(admitted, { run: { id, seq: 2 } }));
  const close = await proved(setup, closeEnvelope({ id, seq: 3 }));
  return { id, members: [admitted, denied, outcome], close };
}

const readRun = ({ get }: Setup, id: string, path = '') =>
  get(`/v1/runs/${id}${path}?agent=${AGENT}`);

async function packageOf(setup: Setup, id: string): Promise<RunPackage> {
  const reply = await readRun(setup, id, '/package');
  expect(reply.status).toBe(200);
  expect(reply.bytes.toString()).toBe(canonicalize(reply.json as JsonValue));
  return runPackageSchema.parse(reply.json);
}

const verified = ({ pins }: Setup, document: unknown): RunResult =>
  verifyRun(document, pins, nativeCrypto);

describe('a request in a run', () => {
  it('is rejected when its number is in use, as a single request and in a batch', async ({
    setup,
  }) => {
    const id = newRunId();
    const first = member(id, 0);
    await proved(setup, first);
    expect((await send(setup, first)).headers['idempotent-replayed']).toBe('true');
    expectProblem(await send(setup, member(id, 0)), 409, 'run_seq_taken');
    const batch = await setup.post('/v1/batches', [member(id, 0), member(id, 1), member(id, 1)]);
    await workBatches(setup.registry);
    const { json } = await setup.get(`/v1/batches/${String(batch.json['batch_id'])}/results`);
    const results = json['results'] as { status: number; problem?: { code: string } }[];
    expect(results[0]).toMatchObject({ status: 409, problem: { code: 'run_seq_taken' } });
    expect(results.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
  });

  it('is rejected once the run is closed, unless it repeats an earlier request', async ({
    setup,
  }) => {
    const id = newRunId();
    const first = member(id, 0);
    await proved(setup, first);
    const close = closeEnvelope({ id, seq: 1 });
    await proved(setup, close);
    expectProblem(await send(setup, member(id, 2)), 409, 'run_closed');
    expectProblem(await send(setup, closeEnvelope({ id, seq: 2 })), 409, 'run_closed');
    const batch = await setup.post('/v1/batches', [member(id, 2)]);
    const { json } = await setup.get(`/v1/batches/${String(batch.json['batch_id'])}/results`);
    expect(json['results']).toMatchObject([{ status: 409, problem: { code: 'run_closed' } }]);
    for (const repeated of [first, close]) expect((await send(setup, repeated)).status).toBe(200);
  });

  it('is rejected when the time in the run id is in the future', async ({ setup }) => {
    const ahead = (Date.now() + 120_000).toString(16).padStart(12, '0');
    const id = ahead + newRunId().slice(12);
    const reply = await send(setup, member(id, 0));
    expectProblem(reply, 400, 'invalid_run');
    expect(JSON.stringify(reply.json)).toContain('/run/id');
  });
});

it('the close of a run > is rejected while a request is missing or has a higher number', async ({
  setup,
}) => {
  const id = newRunId();
  await proved(setup, member(id, 1));
  const missing = await send(setup, closeEnvelope({ id, seq: 2 }));
  expectProblem(missing, 409, 'run_incomplete');
  expect(missing.json['detail']).toContain('seq 0 is missing. ');
  expectProblem(await send(setup, closeEnvelope({ id, seq: 1 })), 409, 'run_incomplete');
});

it('GET /v1/runs/{run} > shows the requests of an open run, and the missing numbers', async ({
  setup,
}) => {
  const id = newRunId();
  const proofId = await proved(setup, member(id, 1));
  expect((await readRun(setup, id)).json).toMatchObject({
    state: 'open',
    members: [{ seq: 1, proof_id: proofId, effect: 'ADMIT' }],
    close_proof_id: null,
    missing: [0],
  });
  expectProblem(await readRun(setup, id, '/package'), 409, 'run_open');
  expectProblem(await setup.get(`/v1/runs/${id}?agent=other`), 404, 'run_not_found');
  const withoutAgent = await setup.get(`/v1/runs/${id}`);
  expectProblem(withoutAgent, 400, 'invalid_query');
  expect(withoutAgent.json['detail']).toBe('The parameter "agent" is missing. Send it.');
});

describe('package of a run', () => {
  it('proves offline that the run has these proofs and no others', async ({ setup }) => {
    const { close, id, members } = await closedRun(setup);
    expectProblem(await readRun(setup, id, '/package'), 409, 'pending_checkpoint');
    await setup.publish();
    const document = await packageOf(setup, id);
    const result = verified(setup, JSON.stringify(document));
    const { json } = await readRun(setup, id);
    expect(json).toMatchObject({ state: 'closed', close_proof_id: close, missing: [] });
    expect(result).toMatchObject({ complete: true, faults: [], missing: [] });
    expect(result.decidable && result.close?.proof_id).toBe(close);
    expect(result.decidable && result.members?.map(({ proof_id }) => proof_id)).toEqual(members);
  });

  it('does not wait for a request that was accepted at the same time as the close', async ({
    setup,
  }) => {
    const { id, members } = await closedRun(setup);
    const { registry } = setup;
    await acceptIntake(registry.engine, [agentItem(registry, member(id, 7))]);
    await setup.publish();
    const document = await packageOf(setup, id);
    expect(verified(setup, document)).toMatchObject({ complete: true, faults: [] });
    const listed = (await readRun(setup, id)).json['members'] as Fields[];
    expect(listed.map((one) => one['proof_id'])).toEqual(members);
  });

  it('keeps the commitments of erased members', async ({ setup }) => {
    const { id, members } = await closedRun(setup);
    await eraseProof(setup.db, members[1]!);
    await setup.publish();
    const document = await packageOf(setup, id);
    expect(document.members[1]).toMatchObject({ proof_record: null });
    expect(verified(setup, document)).toMatchObject({ complete: true, missing: [1] });
    expectProblem(await send(setup, member(id, 1)), 409, 'run_closed');
  });
});

it('list of proofs > filters by agent, tool, run, parent, batch and bound, and shows them', async ({
  setup,
}) => {
  const run = await closedRun(setup);
  const [admitted = '', denied = '', outcome = ''] = run.members;
  const tool = `tool-${run.id}`;
  const own = await proved(setup, admissionEnvelope({ tool, agent: { id: 'agent-9' } }));
  const items = [admissionEnvelope(), admissionEnvelope()];
  const batch = await setup.post('/v1/batches', items);
  await workBatches(setup.registry);
  const list = async (query: string): Promise<Fields[]> => {
    const reply = await setup.get(`/v1/proofs?limit=200&${query}`);
    expect(reply.status).toBe(200);
    return reply.json['proofs'] as Fields[];
  };
  const idsOf = async (query: string) => (await list(query)).map((one) => one['proof_id']);
  expect(await idsOf(`run=${run.id}&agent=agent-9`)).toEqual([]);
  for (const status of ['', '&status=BACKEND_LOOKUP_REQUIRED']) {
    expect(await idsOf(`parent=${admitted}${status}`)).toEqual([outcome]);
    const ofRun = await idsOf(`run=${run.id}&agent=${AGENT}${status}`);
    expect(ofRun).toEqual([run.close, outcome, denied, admitted]);
  }
  const view = (await setup.get(`/v1/proofs/${admitted}`)).json;
  const children = (await setup.get(String(view['children']))).json['proofs'] as Fields[];
  expect(children.map((one) => one['proof_id'])).toEqual([outcome]);
  const agents = (await list('agent=agent-9')).map(({ agent }) => agent);
  expect(new Set(agents)).toEqual(new Set(['agent-9']));
  expect(await idsOf(`tool=${tool}`)).toEqual([own]);
  expect(await idsOf(`agent=agent-9&tool=${tool}`)).toEqual([own]);
  expect(await idsOf(`agent=agent-9&bound=true`)).toEqual([]);
  expect(await idsOf(`agent=agent-9&bound=false`)).toContain(own);
  const batchId = String(batch.json['batch_id']);
  // The list for a batch also has the proof of an earlier admission that an item of the batch repeats.
  const repeated = [admissionEnvelope(), items[0]];
  const later = await setup.post('/v1/batches', repeated);
  await workBatches(setup.registry);
  expect((await list(`batch=${batchId}`)).map(({ batch_id }) => batch_id)).toEqual([
    batchId,
    batchId,
  ]);
  const ofLater = await list(`batch=${String(later.json['batch_id'])}`);
  expect(ofLater.map(({ batch_id }) => batch_id)).toEqual([later.json['batch_id'], batchId]);
  expect(await idsOf(`batch=${batchId}&status=REVOKED`)).toEqual([]);
  expect((await list(`parent=${admitted}`))[0]).toMatchObject({
    agent: AGENT,
    tool: null,
    run: { id: run.id, seq: 2 },
    parent_proof_id: admitted,
    bound: false,
    batch_id: null,
  });
  expectProblem(await setup.get(`/v1/proofs?run=${run.id}`), 400, 'invalid_query');
});
