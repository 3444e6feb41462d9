import type { Db, Pool } from '../db/transaction.js';
import { toUuid } from '../db/columns.js';
import { asTenants } from '../db/tenant-scope.js';

/** What an envelope may know of the proof that it names as its parent. */
export interface Parent {
  effect: 'ADMIT' | 'DENY';
  kind: 'action' | 'outcome';
}

/**
 * The tenant's own proofs of these ids, each null that it has not; another tenant's is as absent as
 * one that never was, and so is an erased one, of which nobody can say any more what it was.
 */
export function findParents(
  sql: Pool,
  tenantNo: number,
  proofIds: readonly string[],
): Promise<(Parent | null)[]> {
  const asked = proofIds.map((proofId) => ({ tenantNo, proofId }));
  return asTenants(sql, [tenantNo], (tx) => parentsOf(tx, asked));
}

/** For each of `asked`, the proof that its tenant has of that id, or null. */
export async function parentsOf(
  tx: Db,
  asked: readonly { tenantNo: number; proofId: string }[],
): Promise<(Parent | null)[]> {
  const rows = await tx<{ effect: 'ADMIT' | 'DENY' | null; is_outcome: boolean }[]>`
    select p.effect, p.is_outcome
    from unnest(${asked.map(({ proofId }) => toUuid(proofId))}::uuid[],
      ${asked.map(({ tenantNo }) => tenantNo)}::int[]) with ordinality as asked(proof_id, tenant_no, n)
    left join (select * from svc.proof where aep is not null) p using (proof_id, tenant_no)
    order by asked.n`;
  return rows.map(({ effect, is_outcome: isOutcome }) =>
    effect === null ? null : { effect, kind: isOutcome ? 'outcome' : 'action' },
  );
}
