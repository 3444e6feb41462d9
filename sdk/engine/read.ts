import { proofViewSchema, type ProofView } from '../../protocol/schemas/proof-view.js';
import { withDeadline } from '../http/deadline.js';
import { readDocument } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { enveloped, type RequestHashEnvelope } from './envelope.js';
import { requireProofId } from './receipt.js';
import { requireSame } from './require-same.js';

/**
 * `GET /v1/proofs/{proof_id}`: a proof of the tenant's with its record, the verdict in force and
 * what became of it. `not_found` also for another tenant's.
 */
export async function readProofHttp(
  options: EngineOptions,
  input: { proof_id: string },
): Promise<RequestHashEnvelope<ProofView>> {
  const engine = openEngine(options);
  const proofId = requireProofId(input.proof_id);
  return withDeadline(options, (deadline) =>
    enveloped(engine, { method: 'GET', path: `/v1/proofs/${proofId}` }, deadline, (answer) =>
      requireSame(answer, proofId, readDocument(answer, proofViewSchema)),
    ),
  );
}
