import { isBatchId } from '#protocol/ids';
import { readBatch, type Batch } from '#sql/batch-reads';
import type { EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { Problem } from '../http/problem.js';

/** The tenant's batch that a path names, or 404. */
export async function requireBatch(
  { tenantSql }: Pick<EngineContext, 'tenantSql'>,
  { tenantNo }: Caller,
  named: unknown,
): Promise<Batch> {
  const batchId = String(named);
  const batch = isBatchId(batchId)
    ? await tenantSql.run(tenantNo, (sql) => readBatch(sql, tenantNo, batchId))
    : null;
  if (batch === null) {
    throw new Problem('batch_not_found', 'This tenant has no batch of that id.');
  }
  return batch;
}
