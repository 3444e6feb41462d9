import { randomUUID } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { checkProof } from '#fsck/registry/check-leaf';
import { KeyHistory } from '#fsck/registry/context';
import { readPolicyFolder } from '#policy/policy-set';
import { parseEntry } from '#protocol/entries';
import { leafHash } from '#protocol/merkle';
import type { ErasureEntry } from '#protocol/schemas/log-entry';
import type { KeyRestriction } from '#protocol/schemas/api-keys';
import type { Approval } from '#protocol/schemas/approvals';
import { formatTime } from '#protocol/time';
import { verifyOffline } from '#protocol/offline';
import { verifyRun } from '#protocol/run';
import { proofExportSchema, receiptEvidenceSchema } from '#protocol/schemas/proof-export';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { type PolicyFiles } from '#sql/admissions/policies';
import { readEvidence } from '#sql/log/leaf-checks';
import { keyEntries } from '#sql/log/keys';
import { readChunk } from '#sql/fsck/log';
import { checkLeaf, extendHistory, keysFor, NO_KEYS } from '#workers/verify/check-leaf';
import { expireApiKey, revokeApiKey } from '#sql/tenants/api-keys';
import { type Pool, transaction } from '#sql/db/transaction';
import { eraseAdmission } from '#sql/erasure/erase';
import { addApprover, retireApprover } from '#sql/lifecycle/approvers';
import { setAllowlisted, setApprovalTime } from '#sql/tenants/administration';
import {
  admissionEnvelope,
  closeEnvelope,
  newRunId,
  outcomeEnvelope,
} from '../../fixtures/agent.js';
import { activateSet } from '../../fixtures/approval-world.js';
import { newApprover } from '../../fixtures/approvals.js';
import { batchIn, BATCHES, resultsOf } from '../../fixtures/batches.js';
import { withoutTriggers } from '../../fixtures/database.js';
import { headersFor, issueKey, type Reply, workBatches } from '../../fixtures/engine.js';
import { adminOn, done } from '../../fixtures/admin.js';
import { ERASURE_ORDER, eraseProof } from '../../fixtures/erase.js';
import { untilLocked } from '../../fixtures/hold-lock.js';
import { valuesHolding } from '../../fixtures/marks.js';
import { checked } from '../../fixtures/planted.js';
import { activationBody, overlayBody, overlayCase } from '../../fixtures/overlays.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { byId, checkOf } from '../../fixtures/verify-call.js';
import { engineTest, keyIdOf, replacedIn, replayOf, type Setup, verdictOn } from './setup.js';
import { pinning } from '../../fixtures/pins.js';

const AGENT = '/v1/agent/admissions';
const PATH = '/v1/approvals';
const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
const PERMIT = 'permit (principal, action, resource);';
const HOLD = '@requires("approval") forbid (principal, action, resource == Svc::Operation::"PAY");';

const it = engineTest({ rateLimit: 100_000 });

let setup: Setup;
const approver = newApprover();

it.beforeAll(async ({ setup: opened }) => {
  setup = opened;
  await activate({ permit: PERMIT, hold: HOLD });
  await setup.post('/v1/approvers', approver.registration);
});

async function activate(
  policies: Record<string, string>,
  changes: Partial<PolicyFiles> = {},
): Promise<void> {
  await activateSet(setup.registry.admin, { schema, policies, sentences: {}, ...changes });
}

interface Pending {
  envelope: Record<string, unknown>;
  proof_id: string;
  aep_hash: string;
}

/** Sends an admission that requires an approval. */
const held = (fields: Record<string, unknown> = {}): Promise<Pending> =>
  heldBy(admissionEnvelope({ action: 'PAY', ...fields }));

async function heldBy(
  envelope: Record<string, unknown>,
  headers: Record<string, string> = {},
): Promise<Pending> {
  const reply = await setup.post(AGENT, envelope, headers);
  expect(reply.json).toMatchObject({ state: 'approval_required' });
  return { envelope, ...(await shown(String(reply.json['proof_id']))) };
}

async function shown(proof_id: string) {
  const { json } = await setup.get(`/v1/proofs/${proof_id}`);
  return { proof_id, aep_hash: (json['log_entry'] as Pending).aep_hash };
}

const about = ({ proof_id, aep_hash }: Pending) => ({ proof_id, aep_hash });
const send = (approval: Approval): Promise<Reply> => setup.post(PATH, { ...approval });

/** Waits for the second decision that an accepted approval caused, and returns its signed AEP. */
async function secondOf(reply: Reply) {
  expect(reply.status).toBe(202);
  const proof_id = String(reply.json['proof_id']);
  const stateOf = async () => (await setup.get(`/v1/admissions/${proof_id}`)).status;
  await expect.poll(stateOf).not.toBe(202);
  const { json } = await setup.get(`/v1/proofs/${proof_id}`);
  return { proof_id, aep: json['aep'] as { decision: object; evidence: object } };
}

it('a required approval is a signed 202 with its expiry, and permits nothing', async () => {
  await setApprovalTime(setup.registry.admin, TENANT, 60);
  const envelope = admissionEnvelope({ action: 'PAY' });
  const reply = await setup.post(AGENT, envelope);
  expect(reply.status).toBe(202);
  const { receipt, ...status } = reply.json as { proof_id: string; receipt: object };
  const proofId = status.proof_id;
  expect(status).toEqual({
    schema_version: 'svc.runtime.admission_status/1.0',
    proof_id: proofId,
    state: 'approval_required',
    expires_at: expect.stringMatching(/Z$/) as string,
  });
  expect(receipt).toMatchObject({ status: 'APPROVAL_REQUIRED', registry_proof_id: proofId });
  expect(reply.headers['location']).toBe(`/v1/admissions/${proofId}`);

  const repeated = await setup.post(AGENT, envelope);
  expect([repeated.status, repeated.bytes]).toEqual([202, reply.bytes]);

  const view = (await setup.get(`/v1/proofs/${proofId}`)).json as {
    aep: { accepted_at: string; decision: object; valid_until: object; evidence: object };
  };
  expect(view.aep).toMatchObject({
    decision: { effect: 'REQUIRE_APPROVAL', reasons: ['hold'] },
    evidence: { approval: null },
  });
  expect(Object.keys(view.aep.valid_until)).toEqual(['proof']);
  const { expires_at } = status as unknown as { expires_at: string };
  expect(Date.parse(expires_at) - Date.parse(view.aep.accepted_at)).toBe(60_000);

  const outcome = await setup.post(AGENT, outcomeEnvelope(proofId));
  expectProblem(outcome, 422, 'parent_not_admitted');
  await setApprovalTime(setup.registry.admin, TENANT, 900);
});

it('a batch counts the items that require an approval, including repeated admissions', async () => {
  const held = admissionEnvelope({ action: 'PAY' });
  for (const replayed of [0, 1]) {
    const items = [held, admissionEnvelope({ action: 'SHIP' })];
    const sent = await setup.post(BATCHES, items);
    await workBatches(setup.registry);
    const batchId = batchIn(sent).batch_id;
    expect((await setup.get(`/v1/batches/${batchId}`)).json).toMatchObject({
      state: 'completed',
      counts: { total: 2, admitted: 1, denied: 0, approval_required: 1, pending: 0 },
      replayed,
    });
    const [first] = await resultsOf(setup.engine, setup.key, batchId);
    expect(first).toMatchObject({
      state: 'approval_required',
      status: 202,
      receipt: { status: 'APPROVAL_REQUIRED' },
      expires_at: expect.stringMatching(/Z$/) as string,
    });
  }
});

it('an approval causes a second decision, which the repeated admission returns', async () => {
  const pending = await held();
  const approval = approver.approve(about(pending));
  const sent = await send(approval);
  const { aep, proof_id } = await secondOf(sent);
  expect(aep.decision).toEqual({ effect: 'ADMIT', reasons: ['permit'] });
  expect(aep.evidence).toMatchObject({
    approval: {
      pending_proof_id: pending.proof_id,
      registration_hash: approver.registrationHash,
    },
  });
  for (const reply of [
    await setup.post(AGENT, pending.envelope),
    await setup.get(`/v1/admissions/${pending.proof_id}`),
    await setup.get(`/v1/admissions/${proof_id}`),
  ]) {
    expect(reply.status).toBe(200);
    expect(reply.json).toMatchObject({ status: 'ADMITTED', registry_proof_id: proof_id });
  }
  // A repeated approval gets the first response, even when a new approval would be too late.
  const again = await send(approval);
  expect(again.json).toEqual(sent.json);
  expect(again.headers['idempotent-replayed']).toBe('true');
  // Another approval is rejected, because the pending proof already has a second decision.
  expectProblem(await send(approver.approve(about(pending))), 409, 'already_decided');

  await setup.publish();
  for (const id of [pending.proof_id, proof_id]) {
    expect(await verdictOn(setup, byId(id))).toMatchObject({ status: 'VALID' });
    expect((await replayOf(setup, id)).json).toMatchObject({ result: 'match' });
  }
});

it('an API key causes second decisions only about actions that its restriction allows', async () => {
  const pending = await held();
  const approveWith = async (restriction: KeyRestriction): Promise<Reply> => {
    const key = await issueKey(setup.registry, { scopes: ['approve'], restriction });
    return setup.post(PATH, { ...approver.approve(about(pending)) }, headersFor(key));
  };
  for (const restriction of [
    { actions: ['BOOK_*'] },
    { tools: ['mail.*'] },
    { agent_id: 'agent-8' },
    { environment: 'live' as const },
  ]) {
    expectProblem(await approveWith(restriction), 403, 'key_restricted');
  }
  await secondOf(await approveWith({ actions: ['PAY'], agent_id: 'agent-7' }));
});

it.each<[state: string, end: (sql: Pool, keyId: string) => Promise<unknown>]>([
  ['revoked', revokeApiKey],
  ['expired', (sql, keyId) => expireApiKey(sql, keyId, 0)],
])('an approval does not admit a request whose API key is %s', async (_, end) => {
  const { registry } = setup;
  const key = await issueKey(registry, { scopes: ['admit'] });
  const pending = await heldBy(admissionEnvelope({ action: 'PAY' }), headersFor(key));
  await end(registry.admin, keyIdOf(key));
  const sent = await send(approver.approve(about(pending)));
  const second = `/v1/admissions/${String(sent.json['proof_id'])}`;
  await expect.poll(async () => (await setup.get(second)).status).not.toBe(202);
  expect((await setup.get(second)).json).toMatchObject({ code: 'api_key_revoked' });
});

it('an approval admits the request of an API key that expires before the worker decides', async () => {
  const { engine, registry } = setup;
  const key = await issueKey(registry, { scopes: ['admit'] });
  const pending = await heldBy(admissionEnvelope({ action: 'PAY' }), headersFor(key));
  engine.worker.rests = true;
  const sent = await send(approver.approve(about(pending)));
  await expireApiKey(registry.admin, keyIdOf(key), 0);
  engine.worker.rests = false;
  await engine.worker.work();
  expect((await secondOf(sent)).aep.decision).toMatchObject({ effect: 'ADMIT' });
});

it('exports and receipt evidence prove the approval', async () => {
  const { get, pins } = setup;
  const pending = await held();
  const approval = approver.approve(about(pending));
  const { proof_id } = await secondOf(await send(approval));
  const path = `/v1/proofs/${proof_id}`;
  const early = receiptEvidenceSchema.parse((await get(`${path}/receipt-evidence`)).json);
  expect(early.approval).toMatchObject({ envelope: approval, tlog_proof: null });
  await setup.publish();
  const exported = proofExportSchema.parse((await get(`${path}/export`)).json);
  const evidence = receiptEvidenceSchema.parse((await get(`${path}/receipt-evidence`)).json);
  for (const document of [exported, evidence]) {
    expect(document.approval).toMatchObject({
      envelope: approval,
      registration: approver.registration,
      entry: { change: 'activate', registration_hash: approver.registrationHash },
      tlog_proof: expect.any(String) as string,
    });
    const result = verifyOffline(document, pins, nativeCrypto);
    expect(result).toMatchObject({ authentic: true, included: true, faults: [] });
  }
  const genuine = await verdictOn(setup, exported);
  expect([genuine.status, checkOf(genuine, 'submitted_approval')]).toEqual(['VALID', 'pass']);
  expect(checkOf(genuine, 'approval')).toBe('pass');
  const first = proofExportSchema.parse((await get(`/v1/proofs/${pending.proof_id}/export`)).json);
  expect(first.approval).toBeNull();
  const { approval: shown } = exported;
  for (const altered of [
    null,
    { ...shown!, envelope: approver.approve(about(pending)) },
    { ...shown!, registration: newApprover().registration },
    { ...shown!, entry: { ...shown!.entry, time: '2026-01-01T00:00:00.000Z' } },
    { ...shown!, tlog_proof: exported.key.tlog_proof },
  ]) {
    const body = { ...exported, approval: altered };
    const verdict = await verdictOn(setup, body);
    expect([verdict.status, verdict.cause]).toEqual(['INVALID', 'altered']);
    expect(checkOf(verdict, 'submitted_approval')).toBe('fail');
  }
});

it('an approver’s `reject` causes a denial with the reasons of the pending proof', async () => {
  const pending = await held();
  const { aep } = await secondOf(
    await send(approver.approve(about(pending), { decision: 'reject' })),
  );
  expect(aep.decision).toEqual({ effect: 'DENY', reasons: ['hold'] });
  expectProblem(await setup.post(AGENT, pending.envelope), 403, 'policy_denied');
});

it('an approval does not waive another policy of the set in force', async () => {
  const pending = await held();
  await activate({ permit: PERMIT, hold: HOLD, never: 'forbid (principal, action, resource);' });
  const { aep } = await secondOf(await send(approver.approve(about(pending))));
  await activate({ permit: PERMIT, hold: HOLD });
  expect(aep.decision).toEqual({ effect: 'DENY', reasons: ['never'] });
});

it('an approval does not waive the rules of the tenant', async () => {
  const { engine, key, post } = setup;
  const pending = await held();
  const rule = 'forbid (principal, action, resource == Svc::Operation::"PAY");';
  const { json } = await post('/v1/overlays', overlayBody({ 'no-payments': rule }));
  const path = `/v1/overlays/${String(json['overlay_id'])}`;
  const cases = [overlayCase('PAY')];
  expect((await post(`${path}/activate`, activationBody(cases))).status).toBe(200);
  const { aep } = await secondOf(await send(approver.approve(about(pending))));
  await engine.call({ path: `${path}/deactivate`, headers: headersFor(key) });
  expect(aep.decision).toEqual({ effect: 'DENY', reasons: ['overlay.no-payments'] });
});

it('only an approved second decision changes a counter', async () => {
  const limit = `forbid (principal, action, resource) unless {
    context.budgets has payments && context.budgets.payments.after <= 1 };`;
  await activate(
    { permit: PERMIT, hold: HOLD, limit },
    {
      schema: schema.replace(
        'budgets: {}',
        'budgets: { payments?: { before: Long, after: Long } }',
      ),
      counters: { payments: { actions: ['PAY'], sum: null, per: 'tenant', window: 'day' } },
    },
  );
  const all = [await held(), await held(), await held()];
  const decided = async (at: number, decision: 'approve' | 'reject') => {
    const sent = await send(approver.approve(about(all[at]!), { decision }));
    const { aep, proof_id } = await secondOf(sent);
    const [row] = await setup.db.sql<{ values: number[] }[]>`
      select array[(budgets #>> '{payments,before}')::int, (budgets #>> '{payments,after}')::int] as values
      from svc.log_entry where proof_id = ${proof_id}::uuid`;
    return { ...aep.decision, values: row?.values };
  };
  const rejected = await decided(0, 'reject');
  const first = await decided(1, 'approve');
  const second = await decided(2, 'approve');
  await activate({ permit: PERMIT, hold: HOLD });
  expect([rejected, first, second]).toEqual([
    { effect: 'DENY', reasons: ['hold'], values: [0, 1] },
    { effect: 'ADMIT', reasons: ['permit'], values: [0, 1] },
    { effect: 'DENY', reasons: ['limit'], values: [1, 2] },
  ]);
  expect(await setup.db.sql`select value from svc.counter`).toEqual([{ value: 1 }]);
});

it('a second decision repeats the run number of its pending proof', async () => {
  const { get, pins, post } = setup;
  const run = newRunId();
  const pending = await held({ run: { id: run, seq: 0 } });
  const other = await held({ run: { id: run, seq: 1 } });
  expectProblem(
    await post(AGENT, admissionEnvelope({ run: { id: run, seq: 0 } })),
    409,
    'run_seq_taken',
  );
  setup.engine.worker.rests = true;
  const approval = approver.approve(about(pending));
  const sent = await send(approval);
  const early = await post(AGENT, closeEnvelope({ id: run, seq: 2 }));
  expectProblem(early, 409, 'run_incomplete');
  setup.engine.worker.rests = false;
  await setup.engine.worker.work();
  const second = await secondOf(sent);
  const close = await post(AGENT, closeEnvelope({ id: run, seq: 2 }));
  expect(close.status).toBe(200);
  expectProblem(await send(approver.approve(about(other))), 409, 'run_closed');
  expect((await send(approval)).json).toEqual(sent.json);
  await setup.publish();
  const { json } = await get(`/v1/runs/${run}/package?agent=agent-7`);
  const result = verifyRun(json, pins, nativeCrypto);
  expect(result).toMatchObject({ complete: true, missing: [], faults: [] });
  const members = (result as { members: { proof_id: string }[] }).members;
  expect(members.map(({ proof_id }) => proof_id)).toEqual([
    pending.proof_id,
    other.proof_id,
    second.proof_id,
  ]);
});

it('only one of two concurrent approvals causes the second decision', async () => {
  const pending = await held();
  const all = [0, 1, 2, 3].map(() => send(approver.approve(about(pending))));
  const statuses = (await Promise.all(all)).map(({ status }) => status).sort();
  expect(statuses).toEqual([202, 409, 409, 409]);
});

/** Faulty approvals of a pending proof, by the fault in the name of the test. */
const ATTACKS: Record<string, (pending: Pending) => Approval | Promise<Approval>> = {
  'that has expired': (pending) =>
    approver.approve(about(pending), { expires_at: formatTime(Date.now()) }),
  'by an approver who is not registered': (pending) => newApprover().approve(about(pending)),
  'by an approver of another tenant': async (pending) => {
    const foreign = newApprover('rival');
    await addApprover(setup.registry.admin, foreign.registration);
    return foreign.approve(about(pending), { tenant_id: TENANT });
  },
  'by a retired approver': async (pending) => {
    const retired = newApprover();
    await setup.post('/v1/approvers', retired.registration);
    await setup.post(`/v1/approvers/${retired.registrationHash}/retire`, '');
    return retired.approve(about(pending));
  },
  'of a decided proof': async () => {
    const { json } = await setup.post(AGENT, admissionEnvelope({ action: 'SHIP' }));
    return approver.approve(await shown(String(json['registry_proof_id'])));
  },
  'of a revoked proof': async (pending) => {
    await setup.revoke(pending.proof_id);
    return approver.approve(about(pending));
  },
  'of an erased proof': async (pending) => {
    await eraseProof(setup.db, pending.proof_id);
    return approver.approve(about(pending));
  },
  'during the erasure of its proof': async (pending) => {
    const { db } = setup;
    await new Promise<void>((resolve, reject) => {
      transaction(db.as('svc_erase'), async (tx) => {
        await eraseAdmission(tx, pending.proof_id, ERASURE_ORDER);
        resolve();
        await untilLocked(db.sql, '%');
      }).catch(reject);
    });
    return approver.approve(about(pending));
  },
};

it.each(Object.entries(ATTACKS))('an approval %s has no effect', async (_, attack) => {
  await setup.registry.addTenant('rival').catch(() => undefined);
  const pending = await held();
  const approval = await attack(pending);
  expectProblem(await send(approval), 422, 'approval_rejected');
});

it.each(['pending proof', 'second decision'])(
  'an erasure of a %s erases every copy of the request',
  async (named) => {
    const { db, engine, get, publish, registry } = setup;
    const admin = adminOn(db, { url: db.urlFor('svc_erase') });
    const erase = (id: string) => admin('erase', id, '--reason', 'CASE-7', '--confirm', id);
    const tool = `markworth.${randomUUID()}`;
    const pending = await held({ tool });
    engine.worker.rests = true;
    const rejected = await send(approver.approve(about(pending)));
    expect(await erase(pending.proof_id)).toMatchObject({
      code: 1,
      err: expect.stringContaining('still pending') as string,
    });
    await setAllowlisted(registry.admin, TENANT, false);
    engine.worker.rests = false;
    await engine.worker.work();
    await setAllowlisted(registry.admin, TENANT, true);
    const second = await secondOf(await send(approver.approve(about(pending))));
    await publish();
    const proofs = [pending.proof_id, second.proof_id];
    const disclosed = (id: string) => get(`/v1/proofs/${id}/export?disclose=arguments_hash`);
    for (const id of proofs) expect((await disclosed(id)).status).toBe(200);

    const output = await done(
      erase(named === 'pending proof' ? pending.proof_id : second.proof_id),
    );
    const erased = [...proofs, String(rejected.json['proof_id'])].sort();
    expect((output['erased_proofs'] as string[]).sort()).toEqual(erased);
    expect(await valuesHolding(db.sql, [tool])).toEqual([]);
    for (const proof_id of proofs) {
      expectProblem(await disclosed(proof_id), 410, 'payload_erased');
      expectProblem(await replayOf(setup, proof_id), 410, 'payload_erased');
    }
    const [last] = await db.sql<[{ body: Buffer }]>`
      select body from svc.log_entry where kind = 4 order by leaf_index desc limit 1`;
    const leaves = await db.sql<{ at: number }[]>`
      select leaf_index as at from svc.log_entry where proof_id = any(${proofs}::uuid[])
      order by leaf_index`;
    const covered = (parseEntry(last.body) as ErasureEntry).ranges.flatMap(([from, end]) =>
      Array.from({ length: end - from }, (_, i) => from + i),
    );
    expect(covered).toEqual(leaves.map(({ at }) => at));
  },
);

it('an admission can be erased after its request was sent again and approved', async () => {
  const { db, engine, post, registry } = setup;
  const headers = { 'X-Svc-Idempotency-Key': randomUUID() };
  const envelope = admissionEnvelope({ action: 'PAY' });
  engine.worker.rests = true;
  const posted = post(AGENT, envelope, headers);
  const undecided = () => db.sql<{ id: string }[]>`select proof_id as id from svc.intake_pending`;
  await expect.poll(undecided).toHaveLength(1);
  const [rejected] = await undecided();
  await setAllowlisted(registry.admin, TENANT, false);
  engine.worker.rests = false;
  await engine.worker.work();
  expectProblem(await posted, 403, 'tenant_not_allowlisted');
  await setAllowlisted(registry.admin, TENANT, true);
  await secondOf(await send(approver.approve(about(await heldBy(envelope, headers)))));
  expect(await eraseProof(db, rejected!.id)).toMatchObject([{ isNew: true }]);
  const keys = await db.sql`
    select from svc.idempotency_key where key = ${headers['X-Svc-Idempotency-Key']}`;
  expect(keys).toHaveLength(1);
});

/** Returns the failed checks of the verifier and the engine, and the findings of fsck. */
async function verified(proofId: string) {
  const { db, registry } = setup;
  const [{ at }] = await db.sql<[{ at: number }]>`
    select leaf_index as at from svc.log_entry where proof_id = ${proofId}::uuid`;
  const size = await setup.treeSize();
  const [leaf] = await readEvidence(registry.verify.sql, at, at + 1);
  const inTree = leafHash(nativeSha256, leaf!.entry);
  const known = extendHistory(
    NO_KEYS,
    (await keyEntries(db.sql)).map(({ leafIndex, body: bytes }) => ({ leafIndex, bytes })),
  );
  const keys = await keysFor(registry.verify, [leaf!], known);
  const { checks } = checkLeaf(registry.verify.crypto, leaf!, keys, inTree);
  const { leaves } = await readChunk(db.as('svc_fsck'), 0, size);
  const row = leaves.find(({ leafIndex }) => leafIndex === at)!;
  const history = KeyHistory.read(await keyEntries(db.sql), size);
  const verdict = await verdictOn(setup, byId(proofId));
  const failed = (all: typeof verdict.checks) =>
    all.flatMap(({ name, result }) => (result === 'fail' ? [name] : []));
  return {
    verifier: failed(checks),
    engine: failed(verdict.checks),
    fsck: checkProof(row, history, inTree, true).faults.map(({ code }) => code),
  };
}

const OK = { verifier: [], engine: [], fsck: [] };

it.each<[what: string, table: string, change: string, whose: 'second' | 'pending' | 'approver']>([
  ['that names another pending proof', 'intake', 'approves = gen_random_uuid()', 'second'],
  ['with a lower leaf index than its pending proof', 'log_entry', 'leaf_index = 9999', 'pending'],
  ['whose pending proof required no approval', 'log_entry', `effect = 'DENY'`, 'pending'],
  [
    'whose approval names another AEP than its pending proof',
    'log_entry',
    `aep_hash = sha256('')`,
    'pending',
  ],
  [
    'whose reasons differ from those of its pending proof',
    'log_entry',
    `reasons = '["other"]'`,
    'pending',
  ],
  ['whose request differs from that of its pending proof', 'intake', `request = '{}'`, 'pending'],
  ['whose pending proof is missing', 'log_entry', 'proof_id = gen_random_uuid()', 'pending'],
  [
    'whose approver was not active',
    'log_entry',
    `body = ${replacedIn('"activate"', '"retire"')}`,
    'approver',
  ],
])('verifier, engine and fsck report a second decision %s', async (_, table, change, whose) => {
  const pending = await held();
  const { proof_id } = await secondOf(await send(approver.approve(about(pending))));
  await setup.publish();
  expect(await verified(proof_id)).toEqual(OK);
  const which = whose === 'second' ? proof_id : pending.proof_id;
  const rows =
    whose === 'approver'
      ? `kind = 3 and convert_from(body, 'UTF8') like '%${approver.registrationHash}%'`
      : `proof_id = '${which}'`;
  const fails = { verifier: ['approval'], engine: ['approval'], fsck: ['approval_invalid'] };
  await setup.whileAltered(table, change, rows, async () => {
    expect(await verified(proof_id)).toEqual(fails);
  });
  expect(await verified(proof_id)).toEqual(OK);
});

it('verifier, engine and fsck report an altered or missing approval', async () => {
  const pending = await held();
  const { proof_id } = await secondOf(await send(approver.approve(about(pending))));
  await setup.publish();
  for (const change of [
    'null',
    `'{}'`,
    `convert_to(replace(convert_from(approval, 'UTF8'), '"ops-lead"', '"ops-boss"'), 'UTF8')`,
    `convert_to(replace(convert_from(approval, 'UTF8'), '"approve"', '"reject"'), 'UTF8')`,
  ]) {
    await setup.whileAltered(
      'intake',
      `approval = ${change}`,
      `proof_id = '${proof_id}'`,
      async () => {
        const found = await verified(proof_id);
        expect(found.verifier).toContain('aep_hash');
        expect(found.engine).toContain('published_columns');
        expect(found.fsck).toEqual(['aep_altered']);
      },
    );
  }
});

it('an approval after the tenant’s time limit has no effect', async () => {
  await setApprovalTime(setup.registry.admin, TENANT, 60);
  const pending = await held();
  await setApprovalTime(setup.registry.admin, TENANT, 900);
  const ended = `accepted_at = accepted_at - interval '60 seconds'`;
  await setup.whileAltered('intake', ended, `proof_id = '${pending.proof_id}'`, async () => {
    expectProblem(await send(approver.approve(about(pending))), 422, 'approval_rejected');
  });
  expect((await send(approver.approve(about(pending)))).status).toBe(202);
});

it('a pending proof of another tenant is not found', async () => {
  const pending = await held();
  const foreign = newApprover('stranger');
  const stranger = await setup.tenant('stranger');
  await addApprover(setup.registry.admin, foreign.registration);
  const unknown = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
  for (const proof_id of [pending.proof_id, unknown]) {
    const approval = foreign.approve({ ...about(pending), proof_id });
    expectProblem(
      await setup.post(PATH, { ...approval }, stranger),
      404,
      'pending_proof_not_found',
    );
  }
});

it('the worker repeats the checks of an approval before it signs', async () => {
  const late = newApprover();
  await addApprover(setup.registry.admin, late.registration);
  const pending = await held();
  setup.engine.worker.rests = true;
  const sent = await send(late.approve(about(pending)));
  await retireApprover(setup.registry.admin, late.registrationHash);
  setup.engine.worker.rests = false;
  await setup.engine.worker.work();
  const second = await setup.get(`/v1/admissions/${String(sent.json['proof_id'])}`);
  expectProblem(second, 422, 'approval_rejected');
  // Another approval can still cause the second decision.
  const { aep } = await secondOf(await send(approver.approve(about(pending))));
  expect(aep.decision).toMatchObject({ effect: 'ADMIT' });
});

it('an approval has no effect when the log adopted lost leaves after the pending proof', async () => {
  const { db, get } = setup;
  const pending = await held();
  await db.sql`insert into svc.adoption (from_index, to_index) values (1000, 1001)`;
  const { json } = await send(approver.approve(about(pending)));
  const second = () => get(`/v1/admissions/${String(json['proof_id'])}`);
  await expect.poll(async () => (await second()).status).not.toBe(202);
  expectProblem(await second(), 409, 'run_closed');
  await withoutTriggers(db, 'delete from svc.adoption');
});

it('fsck finds an altered and a missing registration', async () => {
  await setup.publish();
  const home = mkdtempSync(join(tmpdir(), 'approvals-'));
  const env = {
    DATABASE_URL: setup.db.urlFor('svc_fsck'),
    DATA_DIR: home,
    ...pinning(setup.log.vkey),
  };
  const corrupt = async () => (await checked(env, '--only', 'registry')).corrupt;
  expect(await corrupt()).toEqual({});
  const row = `registration_hash = '\\x${approver.registrationHash}'`;
  await setup.whileAltered('approver', `document = '{}'`, row, async () => {
    expect(await corrupt()).toEqual({ registration_altered: 1 });
  });
  await setup.whileAltered('approver', `registration_hash = sha256('{}')`, row, async () => {
    expect(await corrupt()).toEqual({ registration_altered: 2 });
  });
});
