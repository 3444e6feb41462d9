import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { eventsOf } from '#protocol/history';
import { isProofId } from '#protocol/ids';
import type { Pool } from '#sql/db/transaction';
import { proofHistory, type ProofHistory } from '#sql/proofs/history';
import { readProof as readStoredProof, type StoredProof } from '#sql/proofs/read';
import type { Caller } from '../http/authenticate.js';
import { authorize } from '../http/authorize.js';
import { addLogFields } from '../http/request-context.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { Problem } from '../http/problem.js';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofViewSchema, type ProofView } from '#protocol/schemas/proof-view';
import { sendRevalidatable } from '../http/send-json.js';
import { statementOf } from '../proofs/standing.js';
import { documentsOf } from '../proofs/stored-proof.js';

const spec: OperationSpec = {
  id: 'readProof',
  method: 'get',
  path: '/v1/proofs/{proof_id}',
  tag: 'Proofs',
  summary: 'Retrieve a proof',
  scopes: ['read'],
  produces: ['application/json'],
  responses: {
    200: {
      description:
        'The proof record with its AEP, receipt and log entry, its current verdict and its status history.',
      content: { 'application/json': proofViewSchema },
      headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
    },
    304: { description: 'Not changed since the ETag that was sent.' },
  },
  problems: ['proof_not_found', 'integrity_failure'],
};

export const readProofOperation: Operation = { spec, handler: readProof };

function readProof(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const proofId = String(req.params['proof_id']);
    const [stored, history] = await deps.ctx.tenantSql.run(caller.tenantNo, async (sql) => {
      const found = await findProof(sql, caller, proofId);
      return [found, await proofHistory(sql, found)] as const;
    });
    addLogFields(res, { proofId: stored.proofId });
    sendRevalidatable(req, res, 'application/json', canonicalBytes(viewOf(stored, history)));
  };
}

/** 404 for another tenant's proof exactly as for one that does not exist. */
export async function findProof(sql: Pool, caller: Caller, proofId: string): Promise<StoredProof> {
  const stored = isProofId(proofId) ? await readStoredProof(sql, caller.tenantNo, proofId) : null;
  if (stored === null) {
    throw new Problem('proof_not_found', 'This tenant has no proof with that id. Check the id.');
  }
  return stored;
}

function viewOf(stored: StoredProof, history: ProofHistory): ProofView {
  const { entry, payload } = documentsOf(stored);
  return {
    schema_version: SCHEMA.proofView,
    proof_id: stored.proofId,
    effect: stored.effect,
    environment: stored.environment,
    leaf_index: stored.leafIndex,
    log_entry: entry,
    receipt: payload?.receipt ?? null,
    aep: payload?.aep ?? null,
    proof_record: payload?.record ?? null,
    verdict: statementOf(stored, history),
    history: eventsOf(stored, history),
  };
}
