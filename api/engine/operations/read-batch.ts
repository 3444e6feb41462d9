import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { batchSchema } from '#protocol/schemas/batch';
import { batchDocument, requireBatch } from '../batches/documents.js';
import { authorize } from '../http/authorize.js';
import { sendJson } from '../http/send-json.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';

const spec: OperationSpec = {
  id: 'readBatch',
  method: 'get',
  path: '/v1/batches/{batch_id}',
  tag: 'Admission',
  summary: 'How far a batch is',
  description: 'Costs the same however large the batch is: ask as often as you like.',
  scopes: ['admit', 'read'],
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Its counts, and whether it is completed.',
      content: { 'application/json': batchSchema },
    },
  },
  problems: ['batch_not_found'],
};

export const readBatchOperation: Operation = { spec, handler: read };

function read(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const batch = await requireBatch(deps.ctx, caller, req.params['batch_id']);
    sendJson(res, 200, canonicalBytes(batchDocument(batch)));
  };
}
