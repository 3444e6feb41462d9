import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { isProofId } from '#protocol/ids';
import { readProof as readStoredProof, type StoredProof } from '#sql/proofs';
import type { Authenticate, Caller } from './authenticate.js';
import type { EngineContext } from './context.js';
import { noteOn } from './exchange.js';
import {
  requireAcceptable,
  requireApiVersion,
  requireScope,
  requireTenantHeader,
} from './gates.js';
import { Problem } from './problem.js';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofView } from '#protocol/schemas/proof-view';
import { sendRevalidatable } from './send-json.js';
import { documentsOf } from './stored-proof.js';

/** GET /v1/proofs/{proof_id} */
export function readProof(ctx: EngineContext, authenticate: Authenticate) {
  return async (req: Request<{ proofId: string }>, res: Response): Promise<void> => {
    const caller = await authenticate(req, res);
    requireTenantHeader(req, caller);
    requireScope(caller, 'read');
    requireApiVersion(req);
    requireAcceptable(req, 'application/json');
    const stored = await findProof(ctx, caller, req.params.proofId);
    noteOn(res, { proofId: stored.proofId });
    sendRevalidatable(req, res, 'application/json', canonicalBytes(viewOf(stored)));
  };
}

/** The caller's own proof of that id; another tenant's is as absent as one that never was. */
export async function findProof(
  ctx: EngineContext,
  caller: Caller,
  proofId: string,
): Promise<StoredProof> {
  const stored = isProofId(proofId)
    ? await readStoredProof(ctx.sql, caller.tenantNo, proofId)
    : null;
  if (stored === null) {
    throw new Problem('proof_not_found', 'This tenant has no proof of that id.');
  }
  return stored;
}

function viewOf(stored: StoredProof): ProofView {
  const { entry, payload, receipt } = documentsOf(stored);
  return {
    schema_version: SCHEMA.proofView,
    proof_id: stored.proofId,
    effect: stored.effect,
    environment: stored.environment,
    leaf_index: stored.leafIndex,
    log_entry: entry,
    receipt,
    aep: payload?.aep ?? null,
    proof_record: payload?.record ?? null,
  };
}
