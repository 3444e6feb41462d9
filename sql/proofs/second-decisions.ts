import {
  type ApprovalCrypto,
  approvalFault,
  type PendingProof,
  type RecordedApproval,
} from '#protocol/approvals';
import { attempt } from '#protocol/errors';
import type { StoredApproval } from '#protocol/schemas/approvals';
import { arrayOf, firstRow } from '../db/columns.js';
import { asTenants, type Db, type Pool } from '../db/transaction.js';
import { APPROVAL_SECONDS, readStoredApproval } from './rebuild-aep.js';

/** A pending proof, with the facts that decide whether an approval still has an effect. */
export interface PendingAdmission extends PendingProof {
  leafIndex: number;
  isErased: boolean;
  isRevoked: boolean;
  acceptedAt: Date;
  approvalSeconds: number;
}

/** Columns of a PendingAdmission, from `svc.log_entry e`, `svc.intake p` and `svc.tenant t`. */
const pendingColumns = (sql: Db) => sql`
  e.proof_id as "proofId", t.tenant_id as "tenantId", e.effect, e.leaf_index as "leafIndex",
  encode(e.aep_hash, 'hex') as "aepHash", num_nulls(p.request, e.reasons) > 0 as "isErased", e.reasons,
  exists (select from svc.log_entry s where s.kind = 2 and s.revokes = e.proof_id) as "isRevoked",
  p.accepted_at as "acceptedAt",
  coalesce((p.validity ->> 'approval')::integer, ${APPROVAL_SECONDS}) as "approvalSeconds"`;

/** One of the tenant's proofs; null when unknown. */
export function readPendingProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PendingAdmission | null> {
  return asTenants(sql, [tenantNo], (tx) =>
    firstRow(tx<PendingAdmission[]>`
      select ${pendingColumns(tx)}
      from svc.log_entry e join svc.intake p using (proof_id) join svc.tenant t on t.tenant_no = e.tenant_no
      where e.proof_id = ${proofId}::uuid and e.tenant_no = ${tenantNo} and p.tenant_no = ${tenantNo}`),
  );
}

/**
 * Why an approval has no effect; null if it has an effect. Both the engine and the worker run this check.
 *
 * @param isActive whether the approver's registration is active at the leaf of the second decision
 * @param acceptedAt when the service accepted the approval, in epoch milliseconds
 */
export function whyNotApprove(
  crypto: ApprovalCrypto,
  stored: StoredApproval,
  at: { pending: PendingAdmission; isActive: boolean; acceptedAt: number },
): string | null {
  const { acceptedAt, pending } = at;
  if (pending.isErased) return 'the pending proof was erased';
  if (pending.isRevoked) return 'the pending proof was revoked';
  const end = pending.acceptedAt.getTime() + pending.approvalSeconds * 1000;
  if (acceptedAt >= end) return 'the time for an approval has ended';
  return approvalFault(crypto, stored, at);
}

export interface SecondDecision {
  /** The pending proof; null when the tenant has no such proof. */
  pending: PendingAdmission | null;
  /** Whether request, environment and agent equal those of the pending proof; null once the pending proof is erased. */
  isSame: boolean | null;
  /** Whether no other decided admission is a second decision about the pending proof. */
  isOnly: boolean;
}

/** The second decisions among these admissions, by proof id. */
export async function readSecondDecisions(
  sql: Db,
  proofIds: readonly string[],
): Promise<Map<string, SecondDecision>> {
  if (proofIds.length === 0) return new Map();
  const rows = await sql<
    (Omit<SecondDecision, 'pending'> & { second: string } & PendingAdmission)[]
  >`
    select i.proof_id as second, ${pendingColumns(sql)},
      case when p.request is not null then
        (i.lane, i.request_hash, i.request, i.bound, i.environment)
          is not distinct from (p.lane, p.request_hash, p.request, p.bound, p.environment) end as "isSame",
      not exists (select from svc.intake o join svc.log_entry l using (proof_id)
        where o.approves = i.approves and not o.refused and o.proof_id <> i.proof_id) as "isOnly"
    from svc.intake i
    left join svc.intake p on p.proof_id = i.approves and p.tenant_no = i.tenant_no
    left join svc.log_entry e on e.proof_id = p.proof_id
    left join svc.tenant t on t.tenant_no = p.tenant_no
    where i.proof_id = any(${arrayOf(proofIds)}::uuid[]) and i.approves is not null`;
  return new Map(
    rows.map(({ second, isOnly, isSame, ...pending }) => [
      second,
      { isOnly, isSame, pending: (pending.proofId as string | null) === null ? null : pending },
    ]),
  );
}

/** The approvals of these proofs, by proof id; reads nothing when no proof is a second decision. */
export async function readApprovals(
  sql: Db,
  proofs: readonly { proofId: string; approval: Buffer | null }[],
): Promise<Map<string, RecordedApproval>> {
  const stored = new Map(
    proofs.flatMap(({ proofId, approval }) => {
      const read = attempt(() => readStoredApproval(approval)) ?? null;
      return read === null ? [] : [[proofId, read] as const];
    }),
  );
  const found = await readSecondDecisions(sql, [...stored.keys()]);
  return new Map(
    [...stored].map(([proofId, one]) => [
      proofId,
      { stored: one, ...(found.get(proofId) ?? { pending: null, isSame: null, isOnly: false }) },
    ]),
  );
}
