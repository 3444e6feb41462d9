import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { parseEntry } from '#protocol/entries';
import type { ErasureEntry } from '#protocol/schemas/log-entry';
import type { KeyRestriction } from '#protocol/schemas/api-keys';
import { verifyOffline } from '#protocol/offline';
import { proofExportSchema, receiptEvidenceSchema } from '#protocol/schemas/proof-export';
import { nativeCrypto } from '#runtime/crypto/node';
import { setAllowlisted, setValidity } from '#sql/tenants/administration';
import { admissionEnvelope, outcomeEnvelope } from '../../fixtures/agent.js';
import { newApprover } from '../../fixtures/approvals.js';
import { batchIn, BATCHES, resultsOf } from '../../fixtures/batches.js';
import { headersFor, issueKey, type Reply, workBatches } from '../../fixtures/engine.js';
import { adminOn, done } from '../../fixtures/admin.js';
import { eraseProof } from '../../fixtures/erase.js';
import { holdLock, untilWaiting } from '../../fixtures/hold-lock.js';
import { valuesHolding } from '../../fixtures/marks.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { byId, checkOf } from '../../fixtures/verify-call.js';
import { replayOf, verdictOn } from './setup.js';
import { AGENT, approvalTest, PATH } from './approval-setup.js';

const { it, setup, approver, held, heldBy, shown, about, send, secondOf } = approvalTest();

it('an admission that requires an approval gets 202 with the reasons and the expiry, and permits nothing', async () => {
  await setValidity(setup.registry.admin, TENANT, { approval: 60 });
  const envelope = admissionEnvelope({ action: 'PAY' });
  const reply = await setup.post(AGENT, envelope);
  expect(reply.status).toBe(202);
  const { receipt, ...status } = reply.json as { proof_id: string; receipt: object };
  const proofId = status.proof_id;
  expect(status).toEqual({
    schema_version: 'svc.runtime.admission_status/1.0',
    proof_id: proofId,
    state: 'approval_required',
    reasons: ['hold'],
    sentences: { hold: 'A payment needs an approval.' },
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
  await setValidity(setup.registry.admin, TENANT, { approval: 900 });
});

it('the batch result of an item that requires an approval stays the first decision, even in a repeated batch', async () => {
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
      reasons: ['hold'],
      sentences: { hold: 'A payment needs an approval.' },
      expires_at: expect.stringMatching(/Z$/) as string,
    });
    if (replayed === 1) continue;
    const pending = { envelope: held, ...(await shown(String(first?.proof_id))) };
    await secondOf(await send(approver.approve(about(pending))));
    expect(await resultsOf(setup.engine, setup.key, batchId)).toContainEqual(first);
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
  // A different approval is rejected, because the pending proof already has a second decision.
  expectProblem(await send(approver.approve(about(pending))), 409, 'already_decided');

  await setup.publish();
  for (const id of [pending.proof_id, proof_id]) {
    expect(await verdictOn(setup, byId(id))).toMatchObject({ status: 'VALID' });
    expect((await replayOf(setup, id)).json).toMatchObject({ result: 'match' });
  }
});

it('an approval with a restricted API key is accepted only if the restriction allows the action', async () => {
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

it('only one of four concurrent approvals causes the second decision', async () => {
  const pending = await held();
  const all = [0, 1, 2, 3].map(() => send(approver.approve(about(pending))));
  const statuses = (await Promise.all(all)).map(({ status }) => status).sort();
  expect(statuses).toEqual([202, 409, 409, 409]);
});

it.each(['pending proof', 'second decision'])(
  'an erasure of a %s erases every copy of the request',
  async (named) => {
    const { db, engine, get, publish, registry } = setup;
    const admin = adminOn(db, { url: db.urlFor('svc_erase') });
    const erase = (id: string) => admin('erase', id, '--reason', 'CASE-7', '--confirm', id);
    const tool = `markworth.${randomUUID()}`;
    const pending = await held({ tool });
    engine.worker.isPaused = true;
    const rejected = await send(approver.approve(about(pending)));
    expect(await erase(pending.proof_id)).toMatchObject({
      code: 1,
      err: expect.stringContaining('still pending') as string,
    });
    await setAllowlisted(registry.admin, TENANT, false);
    engine.worker.isPaused = false;
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
  engine.worker.isPaused = true;
  const posted = post(AGENT, envelope, headers);
  const undecided = () => db.sql<{ id: string }[]>`select proof_id as id from svc.intake_pending`;
  await expect.poll(undecided).toHaveLength(1);
  const [rejected] = await undecided();
  await setAllowlisted(registry.admin, TENANT, false);
  engine.worker.isPaused = false;
  await engine.worker.work();
  expectProblem(await posted, 403, 'tenant_not_allowlisted');
  await setAllowlisted(registry.admin, TENANT, true);
  await secondOf(await send(approver.approve(about(await heldBy(envelope, headers)))));
  expect(await eraseProof(db, rejected!.id)).toMatchObject([{ isNew: true }]);
  const keys = await db.sql`
    select from svc.idempotency_key where key = ${headers['X-Svc-Idempotency-Key']}`;
  expect(keys).toHaveLength(1);
});

it('the erasure of a tenant reports a second decision that an approval stores during the erasure', async () => {
  const { db, engine } = setup;
  const admin = adminOn(db, { url: db.urlFor('svc_erase') });
  const erase = () => admin('erase', 'tenant', TENANT, '--reason', 'CASE-8', '--confirm', TENANT);
  const tool = `markworth.${randomUUID()}`;
  const pending = await held({ tool });
  engine.worker.isPaused = true;
  // This lock delays the approval after the engine has copied the request.
  const release = await holdLock(db.sql, 'lock table svc.intake_pending in share mode');
  const sent = send(approver.approve(about(pending)));
  await untilWaiting(db.sql);
  const erasing = erase();
  await Promise.race([erasing, untilWaiting(db.sql, 2)]);
  await release();
  const { proof_id } = (await sent).json;
  expect(await erasing).toMatchObject({ code: 1, json: { unsettled_proofs: [proof_id] } });
  engine.worker.isPaused = false;
  await engine.worker.work();
  expect(await erase()).toMatchObject({ code: 0, json: { unsettled: 0 } });
  expect(await valuesHolding(db.sql, [tool])).toEqual([]);
});
