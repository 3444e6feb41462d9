import type { Request, Response } from 'express';
import { isProofId } from '#protocol/ids';
import { revocationSchema, revocationStatusSchema } from '#protocol/schemas/lifecycle';
import { ARTIFACT_KINDS } from '#protocol/status';
import { revocationState } from '#sql/lifecycle/revocations';
import { authorize } from '../http/authorize.js';
import { addLogFields } from '../http/request-context.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { Problem } from '../http/problem.js';
import {
  REVOCATION_PROBLEMS,
  sendPendingRevocation,
  sendRevocation,
  loggedRevocation,
} from '../lifecycle/documents.js';

const spec: OperationSpec = {
  id: 'readRevocation',
  method: 'get',
  path: '/v1/proofs/{proof_id}/revocations/{artifact_kind}',
  tag: 'Lifecycle',
  summary: 'Retrieve a revocation',
  description:
    'Covers revocations of the artifact itself. The verdict also covers revocations of artifacts ' +
    'that it depends on.',
  scopes: ['read', 'lifecycle'],
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Revoked: the revocation in the log.',
      content: { 'application/json': revocationSchema },
    },
    202: {
      description: 'Requested and durable, not in the log yet.',
      content: { 'application/json': revocationStatusSchema },
      headers: { Location: 'This address.', 'Retry-After': 'Seconds.' },
    },
  },
  problems: ['revocation_not_found', ...REVOCATION_PROBLEMS],
};

export const readRevocationOperation: Operation = { spec, handler: readRevocation };

function readRevocation(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const proofId = String(req.params['proof_id']);
    const artifactKind = ARTIFACT_KINDS.find((kind) => kind === req.params['artifact_kind']);
    const state =
      isProofId(proofId) && artifactKind !== undefined
        ? await deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
            revocationState(sql, caller.tenantNo, proofId, artifactKind),
          )
        : null;
    if (state === null || artifactKind === undefined) {
      throw new Problem(
        'revocation_not_found',
        'This tenant has requested no revocation of that artifact. Check the proof id and the artifact kind.',
      );
    }
    addLogFields(res, { proofId });
    if (state === 'pending') sendPendingRevocation(res, { proofId, artifactKind });
    else sendRevocation(res, 200, loggedRevocation(state));
  };
}
