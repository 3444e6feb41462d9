import type { Db, Transaction } from '../db/transaction.js';

export async function erasedAmong(sql: Db, proofIds: readonly string[]): Promise<Set<string>> {
  if (proofIds.length === 0) return new Set();
  const rows = await sql<{ id: string }[]>`
    select proof_id as id from svc.erasure
    where proof_id = any(${[...proofIds]}::uuid[]) and leaf_index is not null`;
  return new Set(rows.map(({ id }) => id));
}

/**
 * Deletes and returns erased leaves below `belowIndex` that have no ERASED verdict yet. The caller must
 * write their verdicts in the same transaction.
 */
export async function takeDueErasures(
  tx: Transaction,
  belowIndex: number,
  limit: number,
): Promise<number[]> {
  const rows = await tx<{ leaf: number }[]>`
    delete from svc.erasure_due where leaf_index in (
      select leaf_index from svc.erasure_due where leaf_index < ${belowIndex}
      order by leaf_index limit ${limit})
    returning leaf_index as leaf`;
  return rows.map(({ leaf }) => leaf);
}

export async function forgetExpiries(tx: Transaction, leaves: readonly number[]): Promise<void> {
  await tx`delete from svc.expiry where leaf_index = any(${[...leaves]}::bigint[])`;
}
