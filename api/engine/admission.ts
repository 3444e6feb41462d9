import type { Request, Response } from 'express';
import { isProofId } from '#protocol/ids';
import { admissionState } from '#sql/settlement';
import type { Answer } from './answer.js';
import type { Authenticate } from './authenticate.js';
import type { EngineContext } from './context.js';
import { noteOn } from './exchange.js';
import {
  requireAcceptable,
  requireApiVersion,
  requireScope,
  requireTenantHeader,
} from './gates.js';
import { Problem } from './problem.js';

/**
 * GET /v1/admissions/{proof_id}: what the POST would have answered, had it waited until now. So a
 * client that follows a 202 handles the same statuses, and only a 200 is an admission.
 */
export function admission(ctx: EngineContext, authenticate: Authenticate, answer: Answer) {
  return async (req: Request<{ proofId: string }>, res: Response): Promise<void> => {
    const caller = await authenticate(req, res);
    requireTenantHeader(req, caller);
    requireScope(caller, 'admit', 'read');
    requireApiVersion(req);
    requireAcceptable(req, 'application/json');
    const { proofId } = req.params;
    const state = isProofId(proofId)
      ? await admissionState(ctx.sql, caller.tenantNo, proofId)
      : null;
    if (state === null) {
      throw new Problem('admission_not_found', 'This tenant has no admission of that id.');
    }
    noteOn(res, { proofId });
    if (state === 'pending') answer.pending(res, proofId);
    else await answer.settled(res, proofId, state);
  };
}
