import { REQUEST_HASH } from '#protocol/commitments';
import { canonicalBytes } from '#protocol/json';
import { SCHEMA } from '#protocol/schemas/ids';
import { receiptEvidenceSchema, type ReceiptEvidence } from '#protocol/schemas/proof-export';
import type { Pool } from '#sql/db/transaction';
import { keysInLog } from '#sql/log/keys';
import { tileCache, firstCheckpointFrom } from '#sql/log/log';
import { tenantOperation } from '../http/request.js';
import { Problem } from '../http/problem.js';
import { addLogFields, sendRevalidatable } from '../http/respond.js';
import { revalidated } from '../../openapi/types.js';
import { json } from '../operation.js';
import { proveInclusion, proveKeys, tlogProofOf } from './inclusion.js';
import { documentsOf, findWithPayload } from './stored-proof.js';

export const receiptEvidenceOperation = tenantOperation(
  {
    id: 'getReceiptEvidence',
    method: 'get',
    path: '/v1/proofs/{proof_id}/receipt-evidence',
    tag: 'Proofs',
    summary: 'Get the evidence of a receipt',
    description:
      'The receipt itself is not signed. Its evidence is available at once: the signed proof record, the ' +
      'log entry, and the disclosed request hash, from which the receipt follows. `tlog_proof` is null ' +
      'until a signed checkpoint covers the entry, at the latest after the `max_merge_delay` of the ' +
      'snapshot. Keep the evidence: with it a monitor finds an omitted entry.',
    scopes: ['read'],
    responses: revalidated(
      json('The signed proof record, the log entry and its inclusion.', receiptEvidenceSchema),
    ),
    problems: ['proof_not_found', 'payload_erased', 'integrity_failure'],
  },
  async ({ inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const evidence = await inTenant(readReceiptEvidence, proofId, (name) => name === REQUEST_HASH);
    addLogFields(res, { proof_id: proofId });
    sendRevalidatable(req, res, 'application/json', canonicalBytes(evidence));
  },
);

/** Reads the evidence under the first checkpoint that covers the entry: later checkpoints do not change the document. */
export async function readReceiptEvidence(
  sql: Pool,
  tenantNo: number,
  proofId: string,
  isDisclosed: (name: string) => boolean,
): Promise<ReceiptEvidence> {
  const stored = await findWithPayload(sql, tenantNo, proofId);
  const { entry, payload } = documentsOf(stored);
  if (payload === null) throw new Problem('payload_erased');
  const checkpoint = await firstCheckpointFrom(sql, stored.leafIndex + 1);
  const read = tileCache(sql);
  const proven = await proveInclusion(read, stored, entry, checkpoint);
  const { aep, disclosures, record } = payload;
  const keys = await keysInLog(sql, [aep.key_id]);
  return {
    schema_version: SCHEMA.receiptEvidence,
    proof_record: record,
    entry,
    ...(await proveKeys(read, stored, aep.key_id, keys, checkpoint)),
    disclosures: disclosures.filter(([, name]) => isDisclosed(name)),
    tlog_proof: tlogProofOf(proven),
  };
}
