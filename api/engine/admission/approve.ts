import { randomBytes } from 'node:crypto';
import { readRequest } from '#policy/decide';
import { isActiveApprover } from '#protocol/approvals';
import { canonicalBytes, parseStrict } from '#protocol/json';
import { isProofId } from '#protocol/ids';
import { admissionStatusSchema } from '#protocol/schemas/admission';
import { approvalRequestSchema, type ApprovalRequest } from '#protocol/schemas/approval-request';
import { approvalSchema } from '#protocol/schemas/approvals';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeCrypto } from '#runtime/crypto/node';
import { acceptApproval } from '#sql/admissions/approvals';
import { readPinnedIntake } from '#sql/proofs/rebuild-aep';
import { admissionState } from '#sql/admissions/outcomes';
import { policyAnnotations } from '#sql/admissions/policies';
import { readApprover } from '#sql/lifecycle/approvers';
import { asTenants } from '#sql/db/transaction';
import { keysInLog } from '#sql/log/keys';
import { treeSize } from '#sql/log/log';
import { readPendingProof, whyNotApprove } from '#sql/admissions/references';
import type { Caller } from '../http/authenticate.js';
import {
  requireOwnTenant,
  tenantOperation,
  requireKeyAllows,
  requireKeyEnvironment,
  parseBody,
  readBody,
} from '../http/request.js';
import { Problem } from '../http/problem.js';
import { addLogFields, requestIdOf, sendJson } from '../http/respond.js';
import { newUuidHex } from '#sql/db/columns';
import { type Call, json } from '../operation.js';
import { readReceiptEvidence } from '../proofs/receipt-evidence.js';
import { approvalRequired, sendPending } from './outcome.js';
import { wakeWorkers } from './submit.js';

const SEED_BYTES = 32;

export const approveOperation = tenantOperation(
  {
    id: 'approveAction',
    method: 'post',
    path: '/v1/approvals',
    tag: 'Admission',
    summary: 'Approve or reject an action that requires an approval',
    description:
      'Takes the decision of a registered approver, signed with the approver’s key, about a proof with the effect `REQUIRE_APPROVAL`. The approval causes a second decision with its own proof: follow `Location`. A pending proof has at most one second decision. A repeated approval returns that decision with `Idempotent-Replayed: true`.',
    scopes: ['approve'],
    body: {
      schema: approvalSchema,
      examples: {
        approve: {
          schema_version: SCHEMA.approvalEnvelope,
          statement: {
            schema_version: SCHEMA.approval,
            tenant_id: 'demo',
            proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
            aep_hash: '06aa5be8026fafae14575512d7fc0506b67f9b1803891656cab6e80df7037dc1',
            decision: 'approve',
            registration_hash: 'd12f20a82d4668f7cdd1da49f95ab398114804deab5970121239a94b116845e5',
            expires_at: '2026-11-22T08:20:00.000Z',
            nonce: 'QEFCQ0RFRkdISUpLTE1OTw',
          },
          signature: {
            type: 'ed25519',
            sig: 'hIctqCdGS0oxL2lvOv4Eymir2tvLOMKTw4xBB0BBTI87kixIsfB9lJrNuYIREF1EhaknS_azWBwc3SbLyz4PDg',
          },
        },
      },
    },
    responses: {
      202: json(
        'Accepted and durable: `Location` returns the second decision, or the reason why none was made.',
        admissionStatusSchema,
        {
          Location: 'Path of the second decision.',
          'Retry-After': 'Seconds to wait before polling `Location`.',
          'Idempotent-Replayed': '`true` if this approval was accepted before.',
        },
      ),
    },
    problems: [
      'tenant_body_mismatch',
      'key_restricted',
      'pending_proof_not_found',
      'already_decided',
      'run_closed',
      'approval_rejected',
    ],
  },
  async ({ caller, ctx, inTenant, req, res }) => {
    requireKeyEnvironment(caller);
    const envelope = parseBody(approvalSchema, await readBody(req), SCHEMA.approvalEnvelope);
    const { aep_hash, proof_id: pendingId, registration_hash, tenant_id } = envelope.statement;
    requireOwnTenant(caller, tenant_id, '/statement/tenant_id');
    addLogFields(res, { proof_id: pendingId });
    const [pending, registration, keys, size] = await inTenant(
      async (sql, tenantNo) =>
        [
          await readPendingProof(sql, tenantNo, pendingId),
          await asTenants(sql, [tenantNo], (tx) => readApprover(tx, tenantNo, registration_hash)),
          await keysInLog(sql),
          await treeSize(sql),
        ] as const,
    );
    if (pending === null) throw new Problem('pending_proof_not_found');
    if (caller.restriction !== null) await requireKeyMayApprove(caller, inTenant, pendingId);
    if (keys === null) throw new Error('a key entry of the log is unreadable');
    if (registration === null) throw rejected('the tenant has no registration with this hash');
    const stored = { envelope, registration, reasons: [...(pending.reasons ?? [])] };
    const isActive = isActiveApprover(keys, registration_hash, size);
    // Checks the expiry at the stored acceptance time, as the worker does later.
    const faultAt = (acceptedAt: number): string | null =>
      whyNotApprove(nativeCrypto, stored, { pending, isActive, acceptedAt });
    const item = {
      proofId: newUuidHex(),
      pending: pendingId,
      seed: randomBytes(SEED_BYTES),
      approval: canonicalBytes(stored),
      keyNo: caller.keyNo,
    };
    const accepted = await inTenant(acceptApproval, item, (time) => faultAt(time.getTime()));
    switch (accepted.outcome) {
      case 'already_decided':
      case 'run_closed':
        throw new Problem(accepted.outcome);
      case 'rejected':
        throw rejected(accepted.fault);
      case 'repeat':
        res.setHeader('Idempotent-Replayed', 'true');
        break;
      case 'accepted':
        void wakeWorkers(
          ctx,
          ctx.announce([accepted.proofId], [requestIdOf(res)], [caller.tenantNo]),
          'the second decision is delayed until stale admissions are requeued',
          { proof_id: accepted.proofId, aep_hash },
        );
    }
    sendPending(res, accepted.proofId);
  },
);

/** The second decision uses the API key of the approval, so the restriction of that key applies. */
async function requireKeyMayApprove(
  caller: Caller,
  inTenant: Call['inTenant'],
  pendingId: string,
): Promise<void> {
  const intake = await inTenant(readPinnedIntake, pendingId);
  if (intake === null) throw rejected('the pending proof was erased');
  requireKeyAllows(caller, readRequest(intake, parseStrict(intake.request)), '/statement/proof_id');
}

const rejected = (fault: string): Problem =>
  new Problem('approval_rejected', `Nothing was admitted: ${fault}.`);

/** A key with the scope `approve` may read every value of a pending proof, and no other proof. */
export const approvalRequestOperation = tenantOperation(
  {
    id: 'readApprovalRequest',
    method: 'get',
    path: '/v1/approvals/{proof_id}',
    tag: 'Admission',
    summary: 'Retrieve a proof that requires an approval',
    description:
      'The signed proof that requires an approval, with every value that its AEP commits to, facts included. An approver recomputes `aep_hash` and the commitments before signing.',
    scopes: ['approve'],
    responses: {
      200: json('The pending proof, and until when it can be approved.', approvalRequestSchema),
    },
    problems: [
      'pending_proof_not_found',
      'already_decided',
      'approval_rejected',
      'payload_erased',
      'integrity_failure',
    ],
  },
  async ({ caller, ctx, inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const outcome = isProofId(proofId) ? await inTenant(admissionState, proofId) : null;
    if (outcome === null) throw new Problem('pending_proof_not_found');
    addLogFields(res, { proof_id: proofId });
    if (outcome !== 'pending' && outcome.state === 'erased') throw new Problem('payload_erased');
    if (outcome === 'pending' || outcome.state === 'refused') throw requiresNone();
    if (outcome.proofId !== proofId) throw new Problem('already_decided');
    if (outcome.effect !== 'REQUIRE_APPROVAL') throw requiresNone();
    const pending = await inTenant(readPendingProof, proofId);
    if (pending?.isRevoked === true) throw rejected('the pending proof was revoked');
    const evidence = await inTenant(readReceiptEvidence, proofId, () => true);
    const { expires_at, sentences } = await approvalRequired(outcome, (digest) =>
      policyAnnotations(ctx.sql, caller.tenantNo, digest),
    );
    const request: ApprovalRequest = {
      schema_version: SCHEMA.approvalRequest,
      evidence,
      expires_at,
      sentences,
    };
    sendJson(res, 200, request);
  },
);

const requiresNone = (): Problem =>
  new Problem('pending_proof_not_found', 'This proof requires no approval. Check its id.');
