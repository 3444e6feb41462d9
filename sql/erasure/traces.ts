import type { Db, Transaction } from '../db/transaction.js';
import type { Erased } from './payloads.js';

/**
 * Blocks new idempotency keys until the transaction ends, and waits for transactions that are binding
 * one: it could belong to an erased admission. Must run before any row lock, to avoid deadlock.
 */
export async function holdKeys(tx: Transaction): Promise<void> {
  await tx`lock table svc.idempotency_key in share row exclusive mode`;
}

/**
 * Erases the idempotency keys and unsalted body hashes of erased admissions. Row-level security hides
 * keys that are also bound to kept data.
 */
export async function eraseTraces(tx: Transaction, erased: readonly Erased[]): Promise<void> {
  for (const { proofId, tenantNo, lane, requestHash, inputHash } of erased) {
    if (requestHash !== null) {
      await tx`
        delete from svc.idempotency_key
        where tenant_no = ${tenantNo} and lane = ${lane} and request_hash = ${requestHash}`;
    }
    const batches = await tx<HashedBatch[]>`
      select distinct b.batch_id as id, b.items_hash as hash
      from svc.batch b join svc.batch_part p using (batch_id)
      where b.tenant_no = ${tenantNo} and b.items_hash is not null
        and ${proofId}::uuid = any(p.proof_ids)`;
    await eraseBatches(tx, tenantNo, batches);
    if (inputHash !== null) await eraseInput(tx, tenantNo, inputHash);
  }
}

/** A batch whose items hash is erased, with the idempotency keys bound to that hash. */
export interface HashedBatch {
  id: string;
  hash: Buffer;
}

/** Erases hashes first: row-level security hides a key while a batch has its hash. */
export async function eraseBatches(
  tx: Transaction,
  tenantNo: number,
  batches: readonly HashedBatch[],
): Promise<void> {
  if (batches.length === 0) return;
  await tx`
    update svc.batch set items_hash = null
    where batch_id = any(${batches.map(({ id }) => id)}::uuid[]) and items_hash is not null`;
  await tx`
    delete from svc.idempotency_key
    where tenant_no = ${tenantNo} and lane = 3 and request_hash in (
      select decode(hash, 'hex')
      from unnest(${batches.map(({ hash }) => hash.toString('hex'))}::text[]) as asked(hash))`;
}

/** Whether an AEP contains the input hash: raw when packed, as hex when stored as text. */
const namesInput = (tx: Db, inputHash: Buffer) => tx`
  (position(${inputHash}::bytea in aep) > 0
    or position(convert_to(${inputHash.toString('hex')}, 'UTF8') in aep) > 0)`;

/**
 * Deletes a policy input unless a kept proof uses it. Inputs name their tenant, so only its proofs
 * can. Concurrent appends are checked last, under the append lock.
 */
async function eraseInput(tx: Transaction, tenantNo: number, inputHash: Buffer): Promise<void> {
  const [before] = await tx<{ is_kept: boolean; last: number | null }[]>`
    select exists (select from svc.proof where tenant_no = ${tenantNo} and aep is not null
        and ${namesInput(tx, inputHash)}) as is_kept,
      (select max(leaf_index) from svc.proof where tenant_no = ${tenantNo}) as last`;
  if (before?.is_kept !== false) return;
  await tx`select svc.hold_appends()`;
  const [since] = await tx<{ is_kept: boolean }[]>`
    select exists (select from svc.proof where tenant_no = ${tenantNo} and aep is not null
      and leaf_index > ${before.last ?? -1} and ${namesInput(tx, inputHash)}) as is_kept`;
  if (since?.is_kept !== false) return;
  await tx`delete from svc.policy_input where input_hash = ${inputHash}`;
}
