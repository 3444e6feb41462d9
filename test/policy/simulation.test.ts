import { expect, it } from 'vitest';
import { newUuidHex } from '#sql/db/columns';
import { preparePolicyEngine } from '#policy/decide';
import { makePolicySet } from '#policy/policy-set';
import { startSimulation } from '#policy/simulation';
import { canonicalBytes } from '#protocol/json';
import { SCHEMA } from '#protocol/schemas/ids';
import { shippedPolicy } from '#programs/shipped-policy';
import type { DecidedAdmission } from '#sql/admissions/decided';
import { newApprover } from '../fixtures/approvals.js';
import { TENANT } from '../fixtures/registry.js';

const { files } = await shippedPolicy();

/** A draft that requires no approval, and permits two payments a day. */
const draft = await preparePolicyEngine(
  await makePolicySet({
    schema: files.schema.replace(
      'budgets: {}',
      'budgets: { pays?: { before: Long, after: Long } }',
    ),
    policies: {
      permit: 'permit (principal, action, resource);',
      limit: `forbid (principal, action, resource == Svc::Operation::"PAY")
        unless { context.budgets has pays && context.budgets.pays.after <= 2 };`,
    },
    sentences: {},
    counters: { pays: { actions: ['PAY'], sum: null, per: 'tenant', window: 'day' } },
  }),
);

const approver = newApprover();
let proofs = 0;

/** A decision about a payment under a set that requires an approval. */
function payment(parts: Partial<DecidedAdmission>): DecidedAdmission {
  const proofId = newUuidHex();
  proofs += 1;
  const request = {
    schema_version: SCHEMA.executeRequest,
    intent_id: proofId,
    tenant_id: TENANT,
    action: 'PAY',
  };
  return {
    proofId,
    tenantNo: 1,
    tenantId: TENANT,
    environment: 'sandbox',
    effect: 'ADMIT',
    keyId: 'key',
    engineVersion: '4',
    bound: false,
    at: new Date('2026-11-20T12:00:00Z'),
    policyDigest: Buffer.alloc(32),
    fixtureHash: null,
    validity: null,
    request: Buffer.from(canonicalBytes(request)),
    requestHash: Buffer.alloc(32),
    seed: Buffer.alloc(32),
    approval: null,
    reasons: ['permit'],
    budgets: null,
    signature: Buffer.alloc(64),
    runMembers: null,
    leafIndex: proofs,
    ...parts,
  };
}

const pending = () => payment({ effect: 'REQUIRE_APPROVAL', reasons: ['hold'] });

/** The second decision about a pending payment. */
function second({ proofId, request }: DecidedAdmission): DecidedAdmission {
  const envelope = approver.approve({ proof_id: proofId, aep_hash: '0'.repeat(64) });
  const { registration } = approver;
  const approval = Buffer.from(canonicalBytes({ envelope, registration, reasons: ['hold'] }));
  return payment({ request, approval });
}

it('simulation > counts an approved action once when the draft requires no approval', () => {
  const { add, counts } = startSimulation(() => draft, 0, { most: 10 });
  const approved = pending();
  const rows = [approved, second(approved), payment({}), payment({})];
  const simulated = rows.map((row) => add(row)?.simulated ?? null);
  expect(simulated).toEqual(['ADMIT [permit]', null, null, 'DENY [limit]']);
  expect(counts).toMatchObject({ admissions: 4, admitted: 1, unchanged: 2, denied: 1 });
});
