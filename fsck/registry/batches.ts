import { batchesFrom, type CheckedBatch } from '#sql/fsck/batches';
import type { RegistryContext } from './context.js';

const AT_ONCE = 50;

/** Batches have all their items, and count what became of them. */
export async function checkBatches({ sql, findings }: RegistryContext): Promise<void> {
  for (let after = `batch_${'0'.repeat(32)}`, more = true; more;) {
    const batches = await batchesFrom(sql, after, AT_ONCE);
    for (const batch of batches) {
      const fault = faultOf(batch);
      if (fault !== null)
        findings.add('batch_differs', `svc.batch batch_id=${batch.batchId}`, fault);
    }
    after = batches.at(-1)?.batchId ?? after;
    more = batches.length === AT_ONCE;
  }
}

function faultOf(batch: CheckedBatch): string | null {
  const { counted, found } = batch;
  if (!batch.arePartsWhole) return 'parts in svc.batch_part that have all its items once';
  if (batch.strays > 0) return `admissions for ${String(batch.strays)} of its items`;
  if (batch.itemsHash === null && batch.erased === 0 && found.invalid < batch.total) {
    return 'items_hash, since none of its items was erased';
  }
  // Items that were erased take it with them, and of invalid ones there is nothing to hash.
  if (batch.itemsHash !== null && batch.foundHash !== null && batch.itemsHash !== batch.foundHash) {
    return `items_hash ${batch.foundHash}, which its items have, found ${batch.itemsHash}`;
  }
  if (counted === null) return 'its counts in svc.batch_progress';
  const names = ['invalid', 'replayed', 'admitted', 'denied', 'refused'] as const;
  for (const name of names) {
    // Items that point to an admission of before are counted a little after it is settled.
    const mayLag = !batch.isComplete && name !== 'invalid' && name !== 'replayed';
    const holds = mayLag ? counted[name] <= found[name] : counted[name] === found[name];
    if (!holds) {
      return `${String(found[name])} ${name} in svc.batch_progress, found ${String(counted[name])}`;
    }
  }
  return null;
}
