import type { Db, Fragment, Pool } from './transaction.js';

/** The last row of a page of a tenant's list, newest first. The next page begins after it. */
export interface ListPlace {
  /** Epoch milliseconds. */
  createdAt: number;
  /** Orders rows created in the same millisecond. */
  id: string;
}

/** Reads a page of a tenant's list: the `limit` newest rows after `after`. */
export type TenantList<Row> = (
  sql: Pool,
  tenantNo: number,
  limit: number,
  after: ListPlace | null,
) => Promise<Row[]>;

/**
 * Continues a where clause: selects the `limit` newest rows after `after`.
 *
 * @param columns the names of the columns of a ListPlace
 * @param valueOf the value of the second column for an id
 */
export const pageAfter = (
  sql: Db,
  [createdAt, id]: [string, string],
  limit: number,
  after: ListPlace | null,
  valueOf: (id: string) => string | Uint8Array = (id) => id,
): Fragment => sql`
  ${
    after === null
      ? sql``
      : sql`and (${sql(createdAt)}, ${sql(id)})
          < (${new Date(after.createdAt)}::timestamptz, ${valueOf(after.id)})`
  }
  order by ${sql(createdAt)} desc, ${sql(id)} desc limit ${limit}`;
