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
  summary: 'Retrieve a batch',
  description: 'Cheap for a batch of any size: poll as often as needed.',
  scopes: ['admit', 'read'],
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Counts and state of the batch.',
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
