import type { Db, Pool } from '../db/transaction.js';
import { asTenants } from '../db/tenant-scope.js';

/** The part of a parent proof that an envelope's validation may use. */
export interface Parent {
  effect: 'ADMIT' | 'DENY';
  kind: 'action' | 'outcome';
}

/** The tenant's proofs with these ids; null for an unknown or erased proof, and for another tenant's. */
export function findParents(
  sql: Pool,
  tenantNo: number,
  proofIds: readonly string[],
): Promise<(Parent | null)[]> {
  const asked = proofIds.map((proofId) => ({ tenantNo, proofId }));
  return asTenants(sql, [tenantNo], (tx) => parentsOf(tx, asked));
}

export async function parentsOf(
  tx: Db,
  asked: readonly { tenantNo: number; proofId: string }[],
): Promise<(Parent | null)[]> {
  const rows = await tx<(Omit<Parent, 'effect'> & { effect: Parent['effect'] | null })[]>`
    select p.effect, case when p.is_outcome then 'outcome' else 'action' end as kind
    from unnest(${asked.map(({ proofId }) => proofId)}::uuid[],
      ${asked.map(({ tenantNo }) => tenantNo)}::int[]) with ordinality as asked(proof_id, tenant_no, n)
    left join (select * from svc.proof where aep is not null) p using (proof_id, tenant_no)
    order by asked.n`;
  return rows.map(({ effect, kind }) => (effect === null ? null : { effect, kind }));
}
