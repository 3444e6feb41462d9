import { expect } from 'vitest';
import type { Approval } from '#protocol/schemas/approvals';
import { formatTime } from '#protocol/time';
import { transaction } from '#sql/db/transaction';
import { eraseAdmission } from '#sql/erasure/erase';
import { addApprover, retireApprover } from '#sql/lifecycle/approvers';
import { setValidity } from '#sql/tenants/administration';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { newApprover } from '../../fixtures/approvals.js';
import { withoutTriggers } from '../../fixtures/database.js';
import { ERASURE_ORDER, eraseProof } from '../../fixtures/erase.js';
import { untilWaiting } from '../../fixtures/hold-lock.js';
import { checked } from '../../fixtures/damaged-copies.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { pinning } from '../../fixtures/pins.js';
import { testFolder } from '../../fixtures/test-folder.js';
import { AGENT, approvalTest, PATH, type Pending } from './approval-setup.js';

const { it, setup, approver, held, shown, about, send, secondOf } = approvalTest();

/** Functions that make a faulty approval of a pending proof. Each name completes the test title "an approval …". */
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
        await untilWaiting(db.sql);
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

it('a revoked pending proof is not offered for approval', async () => {
  const { proof_id } = await held();
  const offered = () => setup.get(`${PATH}/${proof_id}`);
  expect((await offered()).status).toBe(200);
  await setup.revoke(proof_id);
  expectProblem(await offered(), 422, 'approval_rejected');
});

it('an approval after the tenant’s time limit has no effect', async () => {
  await setValidity(setup.registry.admin, TENANT, { approval: 60 });
  const pending = await held();
  await setValidity(setup.registry.admin, TENANT, { approval: 900 });
  const ended = `accepted_at = accepted_at - interval '60 seconds'`;
  await setup.whileAltered('intake', ended, `proof_id = '${pending.proof_id}'`, async () => {
    expectProblem(await send(approver.approve(about(pending))), 422, 'approval_rejected');
  });
  expect((await send(approver.approve(about(pending)))).status).toBe(202);
});

it('an approval of an unknown pending proof is not found', async () => {
  const proof_id = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
  const reply = await send(approver.approve({ ...about(await held()), proof_id }));
  expectProblem(reply, 404, 'pending_proof_not_found');
});

it('the worker repeats the checks of an approval before it signs', async () => {
  const late = newApprover();
  await addApprover(setup.registry.admin, late.registration);
  const pending = await held();
  setup.engine.worker.isPaused = true;
  const sent = await send(late.approve(about(pending)));
  await retireApprover(setup.registry.admin, late.registrationHash);
  setup.engine.worker.isPaused = false;
  await setup.engine.worker.work();
  const second = await setup.get(`/v1/admissions/${String(sent.json['proof_id'])}`);
  expectProblem(second, 422, 'approval_rejected');
  // The rejected approval does not prevent an approval by a registered approver.
  const { aep } = await secondOf(await send(approver.approve(about(pending))));
  expect(aep.decision).toMatchObject({ effect: 'ADMIT' });
});

it.each([
  ['adopt', 'adoption', `(from_index, to_index) values (1000, 1001)`],
  ['end', 'ended_log', `(origin, tree_size, reason) values ('log', 1, 'lost')`],
])(
  'an approval has no effect when `admin log %s` ran after the pending proof',
  async (_, table, row) => {
    const { db, get } = setup;
    const pending = await held();
    await db.sql.unsafe(`insert into svc.${table} ${row}`);
    const { json } = await send(approver.approve(about(pending)));
    const second = () => get(`/v1/admissions/${String(json['proof_id'])}`);
    await expect.poll(async () => (await second()).status).not.toBe(202);
    expectProblem(await second(), 409, 'run_closed');
    await withoutTriggers(db, `delete from svc.${table}`);
  },
);

it('fsck finds an altered and a missing registration of an approver', async () => {
  await setup.publish();
  const home = await testFolder();
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
