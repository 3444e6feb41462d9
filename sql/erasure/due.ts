import type { Db, Transaction } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';
import { fromUuid, toUuid } from '../db/columns.js';

/** Those of the proofs that have an erasure record. */
export function erasedAmong(sql: Db, proofIds: readonly string[]): Promise<Set<string>> {
  return mapDbErrors(async () => {
    if (proofIds.length === 0) return new Set();
    const rows = await sql<{ proof_id: string }[]>`
      select proof_id::text from svc.erasure
      where proof_id = any(${proofIds.map(toUuid)}::uuid[]) and leaf_index is not null`;
    return new Set(rows.map((row) => fromUuid(row.proof_id)));
  });
}

/**
 * Deletes and returns erased leaves below `belowIndex` that have no ERASED verdict yet. The caller must
 * write their verdicts in the same transaction.
 */
export function takeDueErasures(
  tx: Transaction,
  belowIndex: number,
  limit: number,
): Promise<number[]> {
  return mapDbErrors(async () => {
    const rows = await tx<{ leaf_index: number }[]>`
      delete from svc.erasure_due where leaf_index in (
        select leaf_index from svc.erasure_due where leaf_index < ${belowIndex}
        order by leaf_index limit ${limit})
      returning leaf_index`;
    return rows.map((row) => Number(row.leaf_index));
  });
}

/** Deletes the expiries of erased leaves. */
export function forgetExpiries(tx: Transaction, leaves: readonly number[]): Promise<void> {
  return mapDbErrors(async () => {
    await tx`delete from svc.expiry where leaf_index = any(${[...leaves]}::bigint[])`;
  });
}
