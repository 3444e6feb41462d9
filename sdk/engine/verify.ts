import { SCHEMA } from '../../protocol/schemas/ids.js';
import type { ProofExport } from '../../protocol/schemas/proof-export.js';
import { verdictSchema, type Verdict } from '../../protocol/schemas/verdict.js';
import { verifyBodySchema, type VerifyRequest } from '../../protocol/schemas/verify-request.js';
import { withDeadline } from '../http/deadline.js';
import { checkedInput, readDocument } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { canonicalBody, enveloped, type RequestHashEnvelope } from './envelope.js';
import { requireSame } from './require-same.js';

/** A proof id, an AEP with its envelope, or an export as it was given out. */
export type VerifyInput =
  | ProofExport
  | (Omit<VerifyRequest, 'schema_version'> & Partial<Pick<VerifyRequest, 'schema_version'>>);

/**
 * `POST /v1/proofs/verify`: the verification system's verdict on a proof, check by check. A verdict
 * that asserts nothing is an answer, not an error: look at `response.can_assert_validity`, and at
 * `response.cause` for why not.
 */
export async function verifyProofHttp(
  options: EngineOptions,
  input: VerifyInput,
): Promise<RequestHashEnvelope<Verdict>> {
  const engine = openEngine(options);
  const document = checkedInput(verifyBodySchema, {
    schema_version: SCHEMA.verifyRequest,
    ...input,
  });
  const body = canonicalBody(document);
  const asked = document.proof_id ?? document.aep?.proof_id;
  return withDeadline(options, (deadline) =>
    enveloped(engine, { method: 'POST', path: '/v1/proofs/verify', body }, deadline, (answer) =>
      requireSame(answer, asked, readDocument(answer, verdictSchema)),
    ),
  );
}
