import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { BATCH_ID_PATTERN } from '#protocol/ids';
import { batchListSchema } from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import { listBatches, type Batch } from '#sql/batches/read';
import { batchDocument } from '../batches/documents.js';
import { authorize } from '../http/authorize.js';
import { pageOf, pageQuerySchema, parseQuery, readPage } from '../http/paging.js';
import { sendJson } from '../http/send-json.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';

const spec: OperationSpec = {
  id: 'listBatches',
  method: 'get',
  path: '/v1/batches',
  tag: 'Admission',
  summary: 'List batches',
  description: 'Newest first.',
  scopes: ['admit', 'read'],
  query: pageQuerySchema,
  produces: ['application/json'],
  responses: {
    200: { description: 'A page of batches.', content: { 'application/json': batchListSchema } },
  },
  problems: ['invalid_query'],
};

export const listBatchesOperation: Operation = { spec, handler: list };

function list(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const page = pageOf(parseQuery(pageQuerySchema, req), BATCH_ID_PATTERN);
    const after = page.after && { createdAt: page.after.createdAt, batchId: page.after.id };
    const { members, nextCursor } = await readPage(
      page,
      ({ acceptedAt, batchId }: Batch) => ({ createdAt: acceptedAt, id: batchId }),
      (limit) =>
        deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
          listBatches(sql, caller.tenantNo, limit, after),
        ),
    );
    const document = {
      schema_version: SCHEMA.batchList,
      batches: members.map(batchDocument),
      next_cursor: nextCursor,
    };
    sendJson(res, 200, canonicalBytes(document));
  };
}
