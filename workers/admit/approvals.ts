import { whyNotApprove } from '#policy/approval-fault';
import { isActiveApprover } from '#protocol/approvals';
import type { KeyedEntry } from '#protocol/keys';
import { nativeCrypto } from '#runtime/crypto/node';
import { readSecondDecisions } from '#sql/proofs/second-decisions';
import type { PendingIntake } from '#sql/admissions/append';
import type { Transaction } from '#sql/db/transaction';
import { readStoredApproval } from '#sql/proofs/rebuild-aep';

/**
 * Why the approvals of second decisions have no effect, by proof id: the worker does not rely on the
 * engine's check. Reads nothing for a group without second decisions.
 *
 * @param size the index of the next leaf, under the append lock
 */
export async function faultsOfApprovals(
  tx: Transaction,
  intakes: readonly PendingIntake[],
  keys: readonly KeyedEntry[],
  size: number,
): Promise<Map<string, { code: string; detail: string }>> {
  const seconds = intakes.filter(({ approval }) => approval !== null);
  if (seconds.length === 0) return new Map();
  const rows = await readSecondDecisions(
    tx,
    seconds.map(({ proofId }) => proofId),
  );
  return new Map(
    seconds.flatMap(({ proofId, acceptedAt, approval }) => {
      const stored = readStoredApproval(approval)!;
      const { pending = null, isSame } = rows.get(proofId) ?? {};
      const hash = stored.envelope.statement.registration_hash;
      const fault =
        pending === null
          ? 'there is no such pending proof'
          : isSame === false
            ? 'the request differs from that of the pending proof'
            : whyNotApprove(nativeCrypto, stored, {
                pending,
                acceptedAt,
                isActive: isActiveApprover(keys, hash, size),
              });
      return fault === null ? [] : [[proofId, { code: 'approval_rejected', detail: fault }]];
    }),
  );
}
