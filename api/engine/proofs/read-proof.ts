import { canonicalBytes } from '#protocol/json';
import { eventsOf } from '#protocol/history';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofViewSchema, type ProofView } from '#protocol/schemas/proof-view';
import { proofHistory, type ProofHistory, type StoredProof } from '#sql/proofs/read';
import { addLogFields } from '../http/request-context.js';
import { sendRevalidatable } from '../http/respond.js';
import { ETAG_HEADER, json, NOT_MODIFIED } from '../operation.js';
import { tenantOperation } from '../http/gates.js';
import { statementOf } from './statement.js';
import { documentsOf, findProof } from './stored-proof.js';

export const readProofOperation = tenantOperation(
  {
    id: 'readProof',
    method: 'get',
    path: '/v1/proofs/{proof_id}',
    tag: 'Proofs',
    summary: 'Retrieve a proof',
    scopes: ['read'],
    responses: {
      200: json(
        'The proof record with its AEP, receipt and log entry, its current verdict and its status history.',
        proofViewSchema,
        ETAG_HEADER,
      ),
      ...NOT_MODIFIED,
    },
    problems: ['proof_not_found', 'integrity_failure'],
  },
  async ({ inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const [stored, history] = await inTenant(async (sql, tenantNo) => {
      const found = await findProof(sql, tenantNo, proofId);
      return [found, await proofHistory(sql, found)] as const;
    });
    addLogFields(res, { proof_id: stored.proofId });
    sendRevalidatable(req, res, 'application/json', canonicalBytes(viewOf(stored, history)));
  },
);

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
