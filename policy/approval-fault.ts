import { type ApprovalCrypto, verifyApproval } from '#protocol/approvals';
import type { StoredApproval } from '#protocol/schemas/approvals';
import { parseTime } from '#protocol/time';
import type { PendingProof } from '#sql/admissions/approvals';

interface Circumstances {
  pending: PendingProof;
  /** Whether the registration is active at the leaf of the second decision. */
  isActive: boolean;
  /** Acceptance of the approval, in epoch milliseconds. */
  acceptedAt: number;
}

/** When an approval of a pending proof has no effect any more, in epoch milliseconds. */
export const approvalEnd = ({ acceptedAt, approvalSeconds }: PendingProof): number =>
  acceptedAt.getTime() + approvalSeconds * 1000;

/** Why an approval has no effect, or null. The engine and the worker check the same. */
export function approvalFault(
  crypto: ApprovalCrypto,
  { envelope, registration, reasons }: StoredApproval,
  { acceptedAt, isActive, pending }: Circumstances,
): string | null {
  const { statement } = envelope;
  if (pending.effect !== 'REQUIRE_APPROVAL') return 'the proof requires no approval';
  if (pending.request === null || pending.reasons === null) return 'the pending proof was erased';
  if (pending.isRevoked) return 'the pending proof was revoked';
  if (statement.proof_id !== pending.proofId || statement.aep_hash !== pending.aepHash) {
    return 'the approval names another proof or AEP';
  }
  if (statement.tenant_id !== pending.tenantId) return 'the approval names another tenant';
  if (acceptedAt >= parseTime(statement.expires_at) || acceptedAt >= approvalEnd(pending)) {
    return 'the approval has expired, or the time for it';
  }
  if (!isActive) return 'the registration of the approver is not active';
  if (!verifyApproval(crypto, envelope, registration)) return 'its signature does not verify';
  return reasons.join('\n') === pending.reasons.join('\n') ? null : 'the reasons differ';
}
