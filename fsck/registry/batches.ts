import { batchesFrom, type CheckedBatch } from '#sql/fsck/batches';
import type { RegistryContext } from './context.js';

const PAGE_SIZE = 50;

/** Checks that batches have all their items and correct counts. */
export async function checkBatches({ sql, findings }: RegistryContext): Promise<void> {
  for (let after = `batch_${'0'.repeat(32)}`, more = true; more;) {
    const batches = await batchesFrom(sql, after, PAGE_SIZE);
    for (const batch of batches) {
      const fault = faultOf(batch);
      if (fault !== null)
        findings.add('batch_differs', `svc.batch batch_id=${batch.batchId}`, fault);
    }
    after = batches.at(-1)?.batchId ?? after;
    more = batches.length === PAGE_SIZE;
  }
}

function faultOf(batch: CheckedBatch): string | null {
  const { counted, found } = batch;
  if (!batch.arePartsWhole) return 'rows of svc.batch_part with each item once';
  if (batch.strays > 0) return `admissions for ${String(batch.strays)} of its items`;
  if (batch.itemsHash === null && batch.erased === 0 && found.invalid < batch.total) {
    return 'items_hash, since none of its items was erased';
  }
  // An erasure of items deletes the hash, and invalid items have no bytes to hash.
  if (batch.itemsHash !== null && batch.foundHash !== null && batch.itemsHash !== batch.foundHash) {
    return `items_hash ${batch.foundHash} of its items, found ${batch.itemsHash}`;
  }
  if (counted === null) return 'its counts in svc.batch_progress';
  const names = ['invalid', 'replayed', 'admitted', 'denied', 'refused'] as const;
  for (const name of names) {
    // Items of earlier admissions are counted shortly after the outcome.
    const mayLag = !batch.isComplete && name !== 'invalid' && name !== 'replayed';
    const holds = mayLag ? counted[name] <= found[name] : counted[name] === found[name];
    if (!holds) {
      return `${String(found[name])} ${name} in svc.batch_progress, found ${String(counted[name])}`;
    }
  }
  return null;
}
