import { isProofId } from '#protocol/ids';
import { approvalRequestSchema, type ApprovalRequest } from '#protocol/schemas/approval-request';
import { SCHEMA } from '#protocol/schemas/ids';
import { admissionState } from '#sql/admissions/outcomes';
import { policyAnnotations } from '#sql/admissions/policies';
import { tenantOperation } from '../http/gates.js';
import { Problem } from '../http/problem.js';
import { addLogFields } from '../http/request-context.js';
import { sendJson } from '../http/respond.js';
import { json } from '../operation.js';
import { readEvidence } from '../proofs/receipt-evidence.js';
import { approvalRequired, sentencesOf } from './outcome.js';

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
    problems: ['pending_proof_not_found', 'already_decided', 'payload_erased', 'integrity_failure'],
  },
  async ({ caller, ctx, inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const outcome = isProofId(proofId)
      ? await inTenant((sql, tenantNo) => admissionState(sql, tenantNo, proofId))
      : null;
    if (outcome === null) throw new Problem('pending_proof_not_found');
    addLogFields(res, { proof_id: proofId });
    if (outcome !== 'pending' && outcome.state === 'erased') throw new Problem('payload_erased');
    if (outcome === 'pending' || outcome.state === 'refused') throw requiresNone();
    if (outcome.proofId !== proofId) throw new Problem('already_decided');
    if (outcome.effect !== 'REQUIRE_APPROVAL') throw requiresNone();
    const evidence = await inTenant((sql, tenantNo) =>
      readEvidence(sql, tenantNo, proofId, () => true),
    );
    const request: ApprovalRequest = {
      schema_version: SCHEMA.approvalRequest,
      evidence,
      expires_at: approvalRequired(outcome).expires_at,
      sentences: sentencesOf(
        outcome.reasons,
        await policyAnnotations(ctx.sql, caller.tenantNo, outcome.policyDigest),
      ),
    };
    sendJson(res, 200, request);
  },
);

const requiresNone = (): Problem =>
  new Problem('pending_proof_not_found', 'This proof requires no approval. Check its id.');
