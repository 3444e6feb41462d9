import { expect, it } from 'vitest';
import { type ApprovalEvidence, isActiveApprover, secondDecisionFault } from '#protocol/approvals';
import { documentHash } from '#protocol/hash';
import type { Aep } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeCrypto } from '#runtime/crypto/node';
import { newApprover } from '../fixtures/approvals.js';
import { admitted, denied } from '../fixtures/worked-log.js';

const TENANT = admitted.aep.tenant_id;
const approver = newApprover(TENANT);
const pending = {
  proofId: denied.proofId,
  tenantId: TENANT,
  effect: 'REQUIRE_APPROVAL' as const,
  aepHash: denied.record.aep_hash,
  reasons: ['hold'],
  leafIndex: 2,
};
const about = { proof_id: pending.proofId, aep_hash: pending.aepHash };
const LATER = '2026-11-20T17:30:00.000Z';
const LEAF = 3;

/** A second decision as a worker could have signed it. */
function second({ by = approver, statement = {}, aep = {} } = {}) {
  const envelope = by.approve(about, { expires_at: LATER, ...statement });
  const stored = { envelope, registration: by.registration, reasons: pending.reasons };
  const evidence: ApprovalEvidence = {
    stored,
    pending,
    isActive: true,
    isSame: true,
    isOnly: true,
  };
  const approval = {
    pending_proof_id: pending.proofId,
    approval_hash: documentHash(nativeCrypto.sha256, envelope),
    registration_hash: documentHash(nativeCrypto.sha256, by.registration),
  };
  const signed: Aep = {
    ...admitted.aep,
    evidence: { ...admitted.aep.evidence, approval },
    ...aep,
  };
  return { signed, evidence };
}

const faultOf = (
  { signed, evidence }: ReturnType<typeof second>,
  changes: Partial<ApprovalEvidence> = {},
) => secondDecisionFault(nativeCrypto, signed, LEAF, { ...evidence, ...changes });

const DENIED = { effect: 'DENY' as const, reasons: ['hold'] };
const REJECT = { decision: 'reject' } as const;

it('verifyProof accepts second decisions that an approval or a rejection caused', () => {
  expect(faultOf(second())).toBeNull();
  expect(faultOf(second({ statement: REJECT, aep: { decision: DENIED } }))).toBeNull();
  // Once the pending payload is erased, request and reasons cannot be compared.
  const erased = { pending: { ...pending, reasons: null }, isSame: null };
  expect(faultOf(second(), erased)).toBeNull();
});

it.each<[boolean, ...(readonly [at: number, 'activate' | 'retire'])[]]>([
  [false],
  [true, [2, 'activate']],
  [false, [LEAF, 'activate']],
  [false, [1, 'activate'], [2, 'retire']],
  [true, [1, 'activate'], [LEAF, 'retire']],
])('isActiveApprover returns %s after these changes: %j', (active, ...changes) => {
  const entries = changes.map(([leafIndex, change]) => ({
    leafIndex,
    entry: approverEntry(change),
  }));
  expect(isActiveApprover(entries, approver.registrationHash, LEAF)).toBe(active);
});

const approverEntry = (change: 'activate' | 'retire') => ({
  schema_version: SCHEMA.logEntry,
  type: 'key' as const,
  use: 'approver' as const,
  registration_hash: approver.registrationHash,
  change,
  time: LATER,
});

const alteredKey = newApprover(TENANT);
alteredKey.registration.salt = '0'.repeat(64);
const alteredHash = documentHash(nativeCrypto.sha256, alteredKey.registration);
const otherSignature = second();
otherSignature.evidence.stored.envelope.signature = newApprover(TENANT).approve(about).signature;
otherSignature.signed.evidence.approval!.approval_hash = documentHash(
  nativeCrypto.sha256,
  otherSignature.evidence.stored.envelope,
);

const otherRegistration = second();
otherRegistration.signed.evidence.approval!.registration_hash = '0'.repeat(64);

it.each<[fault: string, ReturnType<typeof second>, changes?: Partial<ApprovalEvidence>]>([
  ['another approval or registration', { ...second(), signed: second().signed }],
  [
    'another approval or registration',
    { ...second(), signed: second({ by: newApprover() }).signed },
  ],
  ['another approval or registration', otherRegistration],
  ['no such pending proof before', second(), { pending: null }],
  ['no such pending proof before', second(), { pending: { ...pending, leafIndex: LEAF } }],
  [
    'no such pending proof before',
    second(),
    { pending: { ...pending, proofId: admitted.proofId } },
  ],
  ['requires no approval', second(), { pending: { ...pending, effect: 'DENY' } }],
  ['another proof or AEP', second({ statement: { aep_hash: '0'.repeat(64) } })],
  ['another proof or AEP', second({ statement: { proof_id: admitted.proofId } })],
  ['of another tenant', second({ aep: { tenant_id: 'globex' } })],
  ['names another tenant', second({ statement: { tenant_id: 'globex' } })],
  ['has expired', second({ statement: { expires_at: admitted.aep.accepted_at } })],
  ['is not active', second(), { isActive: false }],
  ['does not verify', second({ by: newApprover('globex'), statement: { tenant_id: TENANT } })],
  ['does not verify', second({ statement: { registration_hash: '0'.repeat(64) } })],
  ['does not verify', second({ by: alteredKey, statement: { registration_hash: alteredHash } })],
  ['does not verify', otherSignature],
  ['reasons differ', second(), { pending: { ...pending, reasons: ['other'] } }],
  ['request differs', second(), { isSame: false }],
  ['a second decision about the same', second(), { isOnly: false }],
  ['rejection differs', second({ statement: REJECT })],
  [
    'rejection differs',
    second({ statement: REJECT, aep: { decision: { ...DENIED, effect: 'ADMIT' } } }),
  ],
  [
    'rejection differs',
    second({ statement: REJECT, aep: { decision: { ...DENIED, reasons: ['other'] } } }),
  ],
])('verifyProof rejects a second decision with a fault: %s', (fault, made, changes) => {
  expect(faultOf(made, changes)).toContain(fault);
});
