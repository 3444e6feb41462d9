import type { Db, Transaction } from '../db/transaction.js';
import type { Erased } from './payloads.js';
import { toUuid } from '../db/columns.js';

/**
 * Keeps everybody from binding idempotency keys until the transaction ends, and waits for who was about
 * to: such a key may be of what is erased. Before any row is locked, so that nobody waits in a circle.
 */
export async function holdKeys(tx: Transaction): Promise<void> {
  await tx`lock table svc.idempotency_key in share row exclusive mode`;
}

/**
 * Keys, and hashes of bodies without a salt, that an erased admission came with. The database shows no
 * key to be deleted that is bound to what is kept as well.
 */
export async function eraseTraces(tx: Transaction, erased: readonly Erased[]): Promise<void> {
  for (const { proofId, tenantNo, lane, requestHash, inputHash } of erased) {
    if (requestHash !== null) {
      await tx`
        delete from svc.idempotency_key
        where tenant_no = ${tenantNo} and lane = ${lane} and request_hash = ${requestHash}`;
    }
    const batches = await tx<HashedBatch[]>`
      select distinct b.batch_id::text, b.items_hash
      from svc.batch b join svc.batch_part p using (batch_id)
      where b.tenant_no = ${tenantNo} and b.items_hash is not null
        and ${toUuid(proofId)}::uuid = any(p.proof_ids)`;
    await eraseBatches(tx, tenantNo, batches);
    if (inputHash !== null) await eraseInput(tx, tenantNo, inputHash);
  }
}

/** A batch whose hash of its items goes, and with it the keys that were bound to that. */
export interface HashedBatch {
  batch_id: string;
  items_hash: Buffer;
}

/** The hash first: a key whose hash a batch still has is shown to nobody who would delete it. */
export async function eraseBatches(
  tx: Transaction,
  tenantNo: number,
  batches: readonly HashedBatch[],
): Promise<void> {
  if (batches.length === 0) return;
  await tx`
    update svc.batch set items_hash = null
    where batch_id = any(${batches.map((batch) => batch.batch_id)}::uuid[]) and items_hash is not null`;
  await tx`
    delete from svc.idempotency_key
    where tenant_no = ${tenantNo} and lane = 3 and request_hash in (
      select decode(hash, 'hex')
      from unnest(${batches.map((batch) => batch.items_hash.toString('hex'))}::text[]) as asked(hash))`;
}

/** An AEP has the hash of its input: raw where it is packed, as text where it is not. */
const namesInput = (tx: Db, inputHash: Buffer) => tx`
  (position(${inputHash}::bytea in aep) > 0
    or position(convert_to(${inputHash.toString('hex')}, 'UTF8') in aep) > 0)`;

/**
 * What it was decided on, unless another proof that is kept was decided on the same: inputs name
 * their tenant, so it is one of the tenant's. What is appended meanwhile is looked at last, while
 * nothing can be.
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
