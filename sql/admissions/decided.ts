import { type Db, type Pool, readAsTenants } from '../db/transaction.js';
import { aepColumns, type AepRow } from '../proofs/rebuild-aep.js';

export type DecidedAdmission = AepRow & { leafIndex: number; tenantNo: number };

/** Decided admissions of all tenants from a leaf index on, in log order. */
export const decidedFrom = (sql: Db, leafIndex: number, limit: number) => sql<DecidedAdmission[]>`
  ${admissionsFrom(sql, leafIndex)} order by e.leaf_index limit ${limit}`;

export const tenantDecidedFrom = (
  sql: Pool,
  tenantNo: number,
  leafIndex: number,
  limit: number,
): Promise<DecidedAdmission[]> =>
  readAsTenants(
    sql,
    [tenantNo],
    (tx) => tx<DecidedAdmission[]>`
      ${admissionsFrom(tx, leafIndex)} and e.tenant_no = ${tenantNo}
      order by e.leaf_index limit ${limit}`,
  );

/** The oldest of the newest `count` proofs of a tenant; undefined when the tenant has fewer proofs. */
export async function oldestOfNewest(sql: Pool, tenantNo: number, count: number) {
  const [row] = await readAsTenants(
    sql,
    [tenantNo],
    (tx) => tx<{ leafIndex: number; at: Date }[]>`
      select leaf_index as "leafIndex", at from svc.log_entry
      where kind = 1 and tenant_no = ${tenantNo} order by leaf_index desc offset ${count - 1} limit 1`,
  );
  return row;
}

const admissionsFrom = (sql: Db, leafIndex: number) => sql`
  select ${aepColumns(sql)}, e.leaf_index as "leafIndex", e.tenant_no as "tenantNo"
  from svc.log_entry e
  join svc.intake i on i.proof_id = e.proof_id
  join svc.tenant t on t.tenant_no = e.tenant_no
  where e.kind = 1 and e.leaf_index >= ${leafIndex}`;
