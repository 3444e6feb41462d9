import { attempt } from '#protocol/errors';
import { parseStrict } from '#protocol/json';
import type { ExecuteRequest } from '#protocol/schemas/admission';
import { asTenants, type Pool, type Transaction } from '../db/transaction.js';
import { UNLIMITED } from '../proofs/rebuild-aep.js';
import { type PinnedPolicy, pinPolicy, repeatedWithOverlay } from './intake.js';

export interface ApprovalItem {
  /** The id of the second decision. */
  proofId: string;
  pending: string;
  seed: Uint8Array;
  /** A `StoredApproval`, canonical. */
  approval: Uint8Array;
  keyNo: number;
}

export type ApprovalOutcome =
  | { outcome: 'accepted' | 'repeat'; proofId: string }
  /** `already_decided`: another approval has caused the second decision, or is pending. */
  | { outcome: 'already_decided' | 'run_closed' }
  | { outcome: 'rejected'; fault: string };

/**
 * Accepts an approval of a pending proof: stores an admission with the same request, the current time and the policy
 * set in force, about which a worker makes the second decision. A pending proof has at most one second decision; a
 * repeated approval returns the existing second decision.
 *
 * @param faultAt returns why an approval that is accepted at this time has no effect, or null
 * @throws PolicyMissingError when no policy set is active
 */
export function acceptApproval(
  sql: Pool,
  tenantNo: number,
  item: ApprovalItem,
  faultAt: (acceptedAt: Date) => string | null,
): Promise<ApprovalOutcome> {
  const accept = async (tx: Transaction): Promise<ApprovalOutcome> => {
    await holdApprovals(tx, [item.pending]);
    const first = await secondDecisionOf(tx, tenantNo, item);
    if (first !== null) return first;
    const policy = await pinPolicy(tx);
    const fault = faultAt(policy.at);
    if (fault !== null) return { outcome: 'rejected', fault };
    if (await isRunClosed(tx, tenantNo, item)) return { outcome: 'run_closed' };
    if (await insertSecond(tx, tenantNo, item, policy)) {
      // Runs a separate statement, because a row-level security check must see the intake row.
      await tx`
        insert into svc.intake_pending (proof_id, accepted_at)
        select proof_id, accepted_at from svc.intake where proof_id = ${item.proofId}::uuid`;
      return { outcome: 'accepted', proofId: item.proofId };
    }
    // The insertion found no request, because an erasure removed the request after the check.
    const other = await secondDecisionOf(tx, tenantNo, item);
    return other ?? { outcome: 'rejected', fault: 'the pending proof was erased' };
  };
  return repeatedWithOverlay(() => asTenants(sql, [tenantNo], accept));
}

/** The first key of the advisory locks; the second key is a hash of the pending proof's id. */
const APPROVAL_LOCK = 7_566_948;

/**
 * Excludes other approvals and erasures of the pending proofs until the transaction ends: a concurrent erasure
 * would miss the copy of the request that an uncommitted second decision contains. The query takes the locks in the
 * order of their hashes, which prevents deadlocks.
 */
export async function holdApprovals(tx: Transaction, pending: readonly string[]): Promise<void> {
  await tx`
    select pg_advisory_xact_lock(${APPROVAL_LOCK}, hash) from (
      select distinct hashtext(id::text) as hash from unnest(${[...pending]}::uuid[]) as id
      order by hash) ordered`;
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

/** Whether the engine has accepted a close of the run to which the pending proof belongs. */
async function isRunClosed(
  tx: Transaction,
  tenantNo: number,
  { pending }: ApprovalItem,
): Promise<boolean> {
  const [row] = await tx<{ isClosed: boolean }[]>`
    select exists (select from svc.intake c where c.tenant_no = p.tenant_no and c.run_key = p.run_key
      and c.run_closes and not c.refused) as "isClosed"
    from svc.intake p where p.proof_id = ${pending}::uuid and p.tenant_no = ${tenantNo}`;
  return row?.isClosed === true;
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
      accepted_at, seed, policy_digest, fixture_hash, validity, key_no, bound, run_key, run_seq,
      run_closes, approves, approval)
    select ${proofId}::uuid, p.tenant_no, p.lane, t.environment, p.request, p.request_hash,
      ${policy.at}, ${seed}, svc.digest_of(t, ${policy.digest}::bytea), f.fixture_hash,
      nullif(t.validity, ${JSON.stringify(UNLIMITED)}::text::jsonb), ${keyNo},
      p.bound, p.run_key, p.run_seq, p.run_closes, p.proof_id, ${approval}
    from svc.intake p join svc.tenant t using (tenant_no)
    left join svc.fixture f on f.fixture_ref = ${request?.proof_chain_fixture_ref ?? null}
    where p.proof_id = ${pending}::uuid and p.tenant_no = ${tenantNo} and p.request is not null
    on conflict (approves) where not refused and approves is not null do nothing`;
  return inserted.count > 0;
}
