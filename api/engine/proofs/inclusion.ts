import { toBase64, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { SCHEMA } from '#protocol/schemas/ids';
import { inclusionResponseSchema, type InclusionResponse } from '#protocol/schemas/proof-export';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { formatTlogProof } from '#protocol/tlog-proof';
import type { StoredProof } from '#sql/proofs/read';
import { addLogFields } from '../http/request-context.js';
import { sendRevalidatable } from '../http/respond.js';
import { ETAG_HEADER, NOT_MODIFIED } from '../operation.js';
import { tenantOperation } from '../http/gates.js';
import { pendingCheckpoint, proveInclusion, type ProvenInclusion } from './prove-inclusion.js';
import { documentsOf, findProof } from './stored-proof.js';

export const inclusionOperation = tenantOperation(
  {
    id: 'getProofInclusion',
    method: 'get',
    path: '/v1/proofs/{proof_id}/inclusion',
    tag: 'Proofs',
    summary: 'Get the inclusion proof',
    description: 'Returns JSON or, for `Accept: text/plain`, a C2SP tlog-proof.',
    scopes: ['read'],
    produces: ['application/json', 'text/plain'],
    responses: {
      200: {
        description: 'The leaf of the proof and its path to a signed checkpoint.',
        content: { 'application/json': inclusionResponseSchema, 'text/plain': 'text' },
        headers: ETAG_HEADER,
      },
      ...NOT_MODIFIED,
    },
    problems: ['proof_not_found', 'pending_checkpoint', 'integrity_failure'],
  },
  async ({ inTenant, req, res, type }) => {
    const proofId = String(req.params['proof_id']);
    const { stored, entry, proven } = await inTenant(async (sql, tenantNo) => {
      const stored = await findProof(sql, tenantNo, proofId);
      const { entry } = documentsOf(stored);
      return { stored, entry, proven: await proveInclusion(sql, stored, entry) };
    });
    addLogFields(res, { proofId: stored.proofId });
    if (type === 'text/plain') {
      sendRevalidatable(req, res, 'text/plain; charset=utf-8', tlogProof(stored, proven));
    } else {
      const body = canonicalBytes(responseOf(stored, entry, proven));
      sendRevalidatable(req, res, 'application/json', body);
    }
  },
);

function responseOf(
  { proofId, leafIndex }: StoredProof,
  entry: ProofEntry,
  { leafHash, under }: ProvenInclusion,
): InclusionResponse {
  const leaf = {
    schema_version: SCHEMA.inclusion,
    proof_id: proofId,
    leaf_index: leafIndex,
    leaf_hash: toBase64(leafHash),
    entry,
  };
  if (under === null) return { ...leaf, state: 'pending_checkpoint', root: null, inclusion: null };
  const { checkpoint, proof } = under;
  return { ...leaf, state: 'included', root: toBase64(checkpoint.root), inclusion: proof };
}

/** A tlog-proof cannot express "pending", so text/plain gets an error where JSON has a state. */
function tlogProof({ leafIndex }: StoredProof, { under }: ProvenInclusion): Uint8Array {
  if (under === null) throw pendingCheckpoint();
  const { checkpoint, path } = under;
  return utf8(formatTlogProof({ index: leafIndex, path, checkpoint: checkpoint.note }));
}
