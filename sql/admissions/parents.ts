import type { Effect } from '#protocol/status';
import { asTenants, type Db, type Pool } from '../db/transaction.js';

/** The part of a parent proof that the validation of an envelope may use. */
export interface Parent {
  effect: Effect;
  kind: 'action' | 'outcome';
}

/** The tenant's own proofs with these ids; null for an id without such a proof, or an erased proof. */
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
  if (asked.length === 0) return [];
  const rows = await tx<(Omit<Parent, 'effect'> & { effect: Parent['effect'] | null })[]>`
    select e.effect, case when e.is_outcome then 'outcome' else 'action' end as kind
    from unnest(${asked.map(({ proofId }) => proofId)}::uuid[],
      ${asked.map(({ tenantNo }) => tenantNo)}::int[]) with ordinality as asked(proof_id, tenant_no, n)
    left join (select * from svc.log_entry where signature is not null) e using (proof_id, tenant_no)
    order by asked.n`;
  return rows.map(({ effect, kind }) => (effect === null ? null : { effect, kind }));
}

export type ParentFault = 'parent_not_found' | 'parent_not_admitted';

/**
 * Why the parent of a subject is invalid, or null. The parent of an outcome must be the admission of
 * an action. An admission may follow from any proof of the tenant whose payload is not erased.
 */
export function parentFault(
  kind: 'admission' | 'outcome',
  parent: Parent | null,
): ParentFault | null {
  if (parent === null) return 'parent_not_found';
  if (kind !== 'outcome') return null;
  return parent.effect === 'ADMIT' && parent.kind === 'action' ? null : 'parent_not_admitted';
}
