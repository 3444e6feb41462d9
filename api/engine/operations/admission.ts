import type { Request, Response } from 'express';
import * as z from 'zod';
import { isProofId } from '#protocol/ids';
import { admissionStatusSchema } from '#protocol/schemas/admission-status';
import { agentReceiptSchema } from '#protocol/schemas/agent';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import { admissionState } from '#sql/admissions/outcomes';
import { authorize } from '../http/authorize.js';
import { addLogFields } from '../http/request-context.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { Problem } from '../http/problem.js';

const spec: OperationSpec = {
  id: 'readAdmission',
  method: 'get',
  path: '/v1/admissions/{proof_id}',
  tag: 'Admission',
  summary: 'Retrieve an admission',
  scopes: ['admit', 'read'],
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Admitted: the receipt that the POST returns for a decided admission.',
      content: { 'application/json': z.union([executeReceiptSchema, agentReceiptSchema]) },
    },
    202: {
      description: 'Accepted and durable, not decided yet.',
      content: { 'application/json': admissionStatusSchema },
      headers: { Location: 'This address.', 'Retry-After': 'Seconds.' },
    },
  },
  problems: [
    'admission_not_found',
    'policy_denied',
    'payload_erased',
    'lane_locked',
    'api_key_revoked',
    'tenant_not_allowlisted',
    'admission_failed',
  ],
};

export const admissionOperation: Operation = { spec, handler: admission };

/** Responds like the POST would have after waiting until now. Only a 200 is an admission. */
function admission(deps: EngineDeps) {
  const { ctx, answer } = deps;
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const proofId = String(req.params['proof_id']);
    const state = isProofId(proofId)
      ? await ctx.tenantSql.run(caller.tenantNo, (sql) =>
          admissionState(sql, caller.tenantNo, proofId),
        )
      : null;
    if (state === null) {
      throw new Problem(
        'admission_not_found',
        'This tenant has no admission with that id. Check the id in the Location header of the 202.',
      );
    }
    addLogFields(res, { proofId });
    if (state === 'pending') answer.pending(res, proofId);
    else await answer.settled(res, proofId, state);
  };
}
