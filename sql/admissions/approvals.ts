import { attempt } from '#protocol/errors';
import { parseStrict } from '#protocol/json';
import type { ExecuteRequest } from '#protocol/schemas/admission';
import type { Effect } from '#protocol/status';
import { arrayOf } from '../db/columns.js';
import { asTenants, type Db, type Pool, type Transaction } from '../db/transaction.js';
import { APPROVAL_SECONDS } from '../proofs/rebuild-aep.js';
import { insertPending, type PinnedPolicy, pinnedValidity, pinPolicy } from './intake.js';

/** The part of a pending proof on which its second decision depends. */
export interface PendingProof {
  proofId: string;
  tenantId: string;
  effect: Effect;
  /** Lower-case hex. */
  aepHash: string;
  /** Null once the payload is erased. */
  request: Buffer | null;
  reasons: string[] | null;
  isRevoked: boolean;
  acceptedAt: Date;
  approvalSeconds: number;
}

const pendingColumns = (sql: Db) => sql`
  e.proof_id as "proofId", t.tenant_id as "tenantId", e.effect,
  encode(e.aep_hash, 'hex') as "aepHash", p.request, e.reasons,
  exists (select from svc.log_entry s where s.kind = 2 and s.revokes = e.proof_id) as "isRevoked",
  p.accepted_at as "acceptedAt",
  coalesce((p.validity ->> 'approval')::integer, ${APPROVAL_SECONDS}) as "approvalSeconds"`;

/** One of the tenant's proofs; null when unknown. */
export function readPendingProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PendingProof | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<PendingProof[]>`
      select ${pendingColumns(tx)}
      from svc.log_entry e join svc.intake p using (proof_id) join svc.tenant t on t.tenant_no = e.tenant_no
      where e.proof_id = ${proofId}::uuid and e.tenant_no = ${tenantNo} and p.tenant_no = ${tenantNo}`;
    return row ?? null;
  });
}

/** A second decision as accepted, beside its pending proof; null without one of its own tenant. */
export interface SecondDecision {
  proofId: string;
  approves: string;
  pending: PendingProof | null;
  /** Whether request, environment and agent are those of the pending proof. */
  isSame: boolean;
}

/** The second decisions among these admissions. */
export async function readSecondDecisions(
  tx: Db,
  proofIds: readonly string[],
): Promise<SecondDecision[]> {
  const rows = await tx<
    (Omit<SecondDecision, 'proofId' | 'pending'> & { second: string } & PendingProof)[]
  >`
    select i.proof_id as second, i.approves, ${pendingColumns(tx)},
      (i.lane, i.request_hash, i.request, i.bound, i.environment)
        is not distinct from (p.lane, p.request_hash, p.request, p.bound, p.environment) as "isSame"
    from svc.intake i
    left join svc.intake p on p.proof_id = i.approves and p.tenant_no = i.tenant_no
    left join svc.log_entry e on e.proof_id = p.proof_id
    left join svc.tenant t on t.tenant_no = p.tenant_no
    where i.proof_id = any(${arrayOf(proofIds)}::uuid[]) and i.approves is not null`;
  return rows.map(({ second, approves, isSame, ...pending }) => ({
    proofId: second,
    approves,
    isSame,
    pending: (pending.proofId as string | null) === null ? null : pending,
  }));
}

export interface ApprovalItem {
  /** Of the second decision. */
  proofId: string;
  pending: string;
  seed: Uint8Array;
  /** A `StoredApproval`, canonical. */
  approval: Uint8Array;
  keyNo: number;
}

export type ApprovalOutcome =
  | { outcome: 'accepted' | 'repeat'; proofId: string }
  /** Another approval has caused the second decision, or waits for it. */
  | { outcome: 'already_decided' }
  | { outcome: 'rejected'; fault: string };

/**
 * Stores the second decision about a pending proof: the same request, with the time and the policy set
 * in force now. A pending proof has one at most; the same approval again is a repeat.
 *
 * @param faultAt why an approval that is accepted at this time has no effect, or null
 * @throws PolicyMissingError when no policy set is active
 */
export function acceptApproval(
  sql: Pool,
  tenantNo: number,
  item: ApprovalItem,
  faultAt: (acceptedAt: Date) => string | null,
): Promise<ApprovalOutcome> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const first = await secondDecisionOf(tx, tenantNo, item);
    if (first !== null) return first;
    const policy = await pinPolicy(tx);
    const fault = faultAt(policy.at);
    if (fault !== null) return { outcome: 'rejected', fault };
    if (await insertSecond(tx, tenantNo, item, policy)) {
      await insertPending(tx, [item]);
      return { outcome: 'accepted', proofId: item.proofId };
    }
    // Without a row, a concurrent erasure has removed the request.
    const other = await secondDecisionOf(tx, tenantNo, item);
    return other ?? { outcome: 'rejected', fault: 'the pending proof was erased' };
  });
}

async function secondDecisionOf(
  tx: Transaction,
  tenantNo: number,
  { approval, pending }: ApprovalItem,
): Promise<ApprovalOutcome | null> {
  const [first] = await tx<{ proofId: string; approval: Buffer | null }[]>`
    select proof_id as "proofId", approval from svc.intake
    where approves = ${pending}::uuid and tenant_no = ${tenantNo} and not refused`;
  if (first === undefined) return null;
  const isSame = first.approval?.equals(approval) === true;
  return isSame ? { outcome: 'repeat', proofId: first.proofId } : { outcome: 'already_decided' };
}

async function insertSecond(
  tx: Transaction,
  tenantNo: number,
  { approval, keyNo, pending, proofId, seed }: ApprovalItem,
  policy: PinnedPolicy,
): Promise<boolean> {
  const [row] = await tx<{ request: Buffer }[]>`
    select request from svc.intake
    where proof_id = ${pending}::uuid and tenant_no = ${tenantNo} and request is not null`;
  const request = row && attempt(() => parseStrict(row.request) as unknown as ExecuteRequest);
  const inserted = await tx`
    insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
      accepted_at, seed, policy_digest, fixture_hash, validity, key_no, bound, approves, approval)
    select ${proofId}::uuid, p.tenant_no, p.lane, t.environment, p.request, p.request_hash,
      ${policy.at}, ${seed}, ${policy.digest}, f.fixture_hash, ${pinnedValidity(tx)}, ${keyNo},
      p.bound, p.proof_id, ${approval}
    from svc.intake p join svc.tenant t using (tenant_no)
    left join svc.fixture f on f.fixture_ref = ${request?.proof_chain_fixture_ref ?? null}
    where p.proof_id = ${pending}::uuid and p.tenant_no = ${tenantNo} and p.request is not null
    on conflict (approves) where not refused and approves is not null do nothing`;
  return inserted.count > 0;
}
