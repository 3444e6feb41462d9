import { isBatchId } from '#protocol/ids';
import { readBatch, type Batch } from '#sql/batch-reads';
import type { Pool } from '#sql/db';
import { Problem } from '../http/problem.js';

/** The tenant's batch that a path names, or 404. */
export async function requireBatch(sql: Pool, tenantNo: number, named: unknown): Promise<Batch> {
  const batchId = String(named);
  const batch = isBatchId(batchId) ? await readBatch(sql, tenantNo, batchId) : null;
  if (batch === null) {
    throw new Problem('batch_not_found', 'This tenant has no batch of that id.');
  }
  return batch;
}
