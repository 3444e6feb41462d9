import { expect } from 'vitest';
import { checkProof } from '#fsck/registry/check-leaf';
import { KeyHistory } from '#fsck/registry/context';
import { leafHash } from '#protocol/merkle';
import { verifyRun } from '#protocol/run';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { readEvidence } from '#sql/log/leaf-checks';
import { keyEntries } from '#sql/log/keys';
import { readChunk } from '#sql/fsck/log';
import { checkLeaf, extendHistory, keysFor, NO_KEYS } from '#workers/verify/check-leaf';
import { expireApiKey, revokeApiKey } from '#sql/tenants/api-keys';
import type { Pool } from '#sql/db/transaction';
import { admissionEnvelope, closeEnvelope, newRunId } from '../../fixtures/agent.js';
import { withoutTriggers } from '../../fixtures/database.js';
import { headersFor, issueKey } from '../../fixtures/engine.js';
import { activationBody, overlayBody, overlayCase } from '../../fixtures/overlays.js';
import { expectProblem } from '../../fixtures/problem.js';
import { byId } from '../../fixtures/verify-call.js';
import { keyIdOf, replacedIn, verdictOn } from './setup.js';
import { AGENT, approvalTest, HOLD, PERMIT, schema } from './approval-setup.js';

const { it, setup, approver, activate, held, heldBy, about, send, secondOf } = approvalTest();

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
  engine.worker.isPaused = true;
  const sent = await send(approver.approve(about(pending)));
  await expireApiKey(registry.admin, keyIdOf(key), 0);
  engine.worker.isPaused = false;
  await engine.worker.work();
  expect((await secondOf(sent)).aep.decision).toMatchObject({ effect: 'ADMIT' });
});

it('a replay under a different policy set keeps the denial by an approver', async () => {
  const pending = await held();
  const sent = await send(approver.approve(about(pending), { decision: 'reject' }));
  const { aep, proof_id } = await secondOf(sent);
  const { json } = await setup.post('/v1/proofs/replay', {
    schema_version: SCHEMA.replayRequest,
    proof_id,
    policy_digest: aep.policy.digest,
  });
  expect(json).toMatchObject({
    result: 'match',
    counterfactual: { decision: { effect: 'DENY', reasons: ['hold'] }, differs: false },
  });
});

it('an approval does not waive the other policies of the set in force', async () => {
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

it('a second decision changes a counter only if it admits the request', async () => {
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
  setup.engine.worker.isPaused = true;
  const approval = approver.approve(about(pending));
  const sent = await send(approval);
  const early = await post(AGENT, closeEnvelope({ id: run, seq: 2 }));
  expectProblem(early, 409, 'run_incomplete');
  setup.engine.worker.isPaused = false;
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

it('an approval of a proof from before an adoption has no effect, whatever the time in the id of the proof', async () => {
  const pending = await held();
  // As if the engine's clock had been five minutes ahead when it made the id of the proof.
  await withoutTriggers(
    setup.db,
    `update svc.intake set accepted_at = accepted_at - interval '5 minutes' where proof_id = '${pending.proof_id}'`,
  );
  await setup.db.sql`
    insert into svc.adoption (from_index, to_index, at) values (1000, 1001, now() - interval '4 minutes')`;
  const sent = await send(approver.approve(about(pending)));
  const second = `/v1/admissions/${String(sent.json['proof_id'])}`;
  await expect.poll(async () => (await setup.get(second)).status).not.toBe(202);
  expect((await setup.get(second)).json).toMatchObject({ code: 'run_closed' });
  await withoutTriggers(setup.db, 'delete from svc.adoption');
});
