import { firstRow, valuesOf } from '../db/columns.js';
import type { Db, Transaction } from '../db/transaction.js';
import { eraseBatches, eraseReasons, holdKeys } from './erase.js';

/**
 * Rows that one statement reads: no index finds a tenant's admissions, and the table may have millions of other rows.
 */
const ROWS_AT_ONCE = 100_000;

/** A tenant's admissions with payload, in order of their ids, in groups of up to `limit`. */
export async function* unerasedOf(
  sql: Db,
  tenantNo: number,
  limit: number,
  rows = ROWS_AT_ONCE,
): AsyncGenerator<string[]> {
  for (let after: string | undefined = '0'.repeat(32); after !== undefined;) {
    const ids: string[] = await valuesOf<string>(sql`
      select proof_id from (select proof_id, tenant_no, request is not null as has_payload
        from svc.intake where proof_id > ${after}::uuid order by proof_id limit ${rows}) i
      where tenant_no = ${tenantNo} and has_payload order by proof_id limit ${limit}`);
    if (ids.length > 0) yield ids;
    [after] =
      ids.length === limit
        ? ids.slice(-1)
        : await valuesOf<string>(sql`
            select proof_id from svc.intake where proof_id > ${after}::uuid
            order by proof_id offset ${rows - 1} limit 1`);
  }
}

/** The last idempotency key of a group, by request type and text. */
export interface KeyPlace {
  lane: number;
  key: string;
}

/**
 * Deletes the next idempotency keys of a tenant after `place`, except those of kept admissions, which row-level security
 * hides. In groups, because a statement for millions of keys would exceed its timeout. Returns null at the end.
 */
export async function eraseKeysAfter(
  tx: Transaction,
  tenantNo: number,
  { lane, key }: KeyPlace,
  limit = ROWS_AT_ONCE,
): Promise<KeyPlace | null> {
  await holdKeys(tx);
  return firstRow(tx<KeyPlace[]>`
    with page as materialized (
      select lane, key from svc.idempotency_key
      where tenant_no = ${tenantNo} and (lane, key) > (${lane}::smallint, ${key})
      order by lane, key limit ${limit}),
    gone as (delete from svc.idempotency_key k using page p
      where k.tenant_no = ${tenantNo} and k.lane = p.lane and k.key = p.key)
    select lane, key from page order by lane desc, key desc limit 1`);
}

/**
 * Erases the remaining rows of a tenant once its admissions are erased: revocation reasons added since,
 * idempotency keys without an admission, and batch hashes and problems.
 *
 * @returns the erased proofs with a pending revocation, whose reason is kept for now
 */
export async function eraseTenantTraces(tx: Transaction, tenantNo: number): Promise<string[]> {
  await holdKeys(tx);
  const revoked = await valuesOf<string>(tx`
    select r.proof_id from svc.revocation_request r join svc.erasure using (proof_id)
    where r.tenant_no = ${tenantNo} and r.document is not null
    union -- administrators revoke without a request
    select s.revokes from svc.log_entry s join svc.log_entry e on e.proof_id = s.revokes
      join svc.erasure x on x.proof_id = s.revokes
    where s.kind = 2 and e.tenant_no = ${tenantNo}`);
  await eraseReasons(tx, revoked);
  await eraseBatchesOf(tx, tenantNo);
  // Row-level security hides the deduplication keys of kept admissions.
  await tx`delete from svc.idempotency_key where tenant_no = ${tenantNo}`;
  return valuesOf(tx`
    select distinct r.proof_id from svc.revocation_pending join svc.revocation_request r using (request_id)
    join svc.erasure using (proof_id) where r.tenant_no = ${tenantNo}`);
}

/**
 * Erases hashes and problems of batches whose admissions are all erased. A batch without admissions
 * is erased when the tenant has an erasure record, or has no admissions at all.
 */
async function eraseBatchesOf(tx: Transaction, tenantNo: number): Promise<void> {
  const batches = await tx<{ id: string; hash: Buffer | null }[]>`
    select b.batch_id as id, b.items_hash as hash from svc.batch b
    cross join lateral (
      select bool_or(one.proof_id is not null) as admits, bool_or(one.proof_id is not null
          and (select true from svc.erasure e where e.proof_id = one.proof_id) is null) as keeps
      from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
      where p.batch_id = b.batch_id) items
    where b.tenant_no = ${tenantNo} and items.keeps is not true and (items.admits
      or exists (select from svc.erasure join svc.intake i using (proof_id)
        where i.tenant_no = ${tenantNo})
      or not exists (select from svc.intake i
        where i.tenant_no = ${tenantNo} and i.request is not null))`;
  const hashed = batches.flatMap(({ id, hash }) => (hash === null ? [] : [{ id, hash }]));
  await eraseBatches(tx, tenantNo, hashed);
  await tx`
    update svc.batch_part set problems = null
    where batch_id = any(${batches.map(({ id }) => id)}::uuid[]) and problems is not null`;
}
