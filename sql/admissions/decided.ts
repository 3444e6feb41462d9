import { type Db, type Pool, readAsTenants } from '../db/transaction.js';
import { aepColumns, type AepRow } from '../proofs/rebuild-aep.js';

export type DecidedAdmission = AepRow & { leafIndex: number };

/** Decided admissions of all tenants below a leaf index, the newest first. */
export const decidedBelow = (sql: Db, leafIndex: number, limit: number) => sql<DecidedAdmission[]>`
  ${admissionsBelow(sql, leafIndex)} order by e.leaf_index desc limit ${limit}`;

/** Like `decidedBelow`, of one tenant. */
export const tenantDecidedBelow = (
  sql: Pool,
  tenantNo: number,
  leafIndex: number,
  limit: number,
): Promise<DecidedAdmission[]> =>
  readAsTenants(
    sql,
    [tenantNo],
    (tx) => tx<DecidedAdmission[]>`
      ${admissionsBelow(tx, leafIndex)} and e.tenant_no = ${tenantNo}
      order by e.leaf_index desc limit ${limit}`,
  );

const admissionsBelow = (sql: Db, leafIndex: number) => sql`
  select ${aepColumns(sql)}, e.leaf_index as "leafIndex"
  from svc.log_entry e
  join svc.intake i on i.proof_id = e.proof_id
  join svc.tenant t on t.tenant_no = e.tenant_no
  where e.kind = 1 and e.leaf_index < ${leafIndex}`;
