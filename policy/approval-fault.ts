import { type ApprovalCrypto, approvalFault } from '#protocol/approvals';
import type { StoredApproval } from '#protocol/schemas/approvals';
import type { PendingAdmission } from '#sql/proofs/second-decisions';

interface Circumstances {
  pending: PendingAdmission;
  /** Whether the approver's registration is active at the leaf of the second decision. */
  isActive: boolean;
  /** When the service accepted the approval, in epoch milliseconds. */
  acceptedAt: number;
}

/** The time from which an approval of a pending proof has no effect, in epoch milliseconds. */
const approvalEnd = ({ acceptedAt, approvalSeconds }: PendingAdmission): number =>
  acceptedAt.getTime() + approvalSeconds * 1000;

/** Why an approval has no effect; null if it has one. The engine and the worker run this check. */
export function whyNotApprove(
  crypto: ApprovalCrypto,
  stored: StoredApproval,
  circumstances: Circumstances,
): string | null {
  const { acceptedAt, pending } = circumstances;
  if (pending.isErased) return 'the pending proof was erased';
  if (pending.isRevoked) return 'the pending proof was revoked';
  if (acceptedAt >= approvalEnd(pending)) return 'the time for an approval has ended';
  return approvalFault(crypto, stored, circumstances);
}
