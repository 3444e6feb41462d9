import { SCHEMA } from '../../protocol/schemas/ids.js';
import type { ProofExport } from '../../protocol/schemas/proof-export.js';
import { replaySchema, type Replay } from '../../protocol/schemas/replay.js';
import { replayBodySchema } from '../../protocol/schemas/verify-request.js';
import { withDeadline } from '../http/deadline.js';
import { checkedInput, readDocument } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { canonicalBody, enveloped, type RequestHashEnvelope } from './envelope.js';
import { requireSame } from './require-same.js';

/** A proof by its id or as an export; with `policy_digest`, another policy set is tried besides. */
export type ReplayInput = ProofExport | { proof_id: string; policy_digest?: string };

/**
 * `POST /v1/proofs/replay`: the decision taken again from what was pinned at the time. Only
 * `response.result` `match` says that it came out the same; `differences` says where it did not.
 */
export async function replayProofHttp(
  options: EngineOptions,
  input: ReplayInput,
): Promise<RequestHashEnvelope<Replay>> {
  const engine = openEngine(options);
  const document = checkedInput(replayBodySchema, {
    schema_version: SCHEMA.replayRequest,
    ...input,
  });
  const body = canonicalBody(document);
  return withDeadline(options, (deadline) =>
    enveloped(engine, { method: 'POST', path: '/v1/proofs/replay', body }, deadline, (answer) =>
      requireSame(answer, document.proof_id, readDocument(answer, replaySchema)),
    ),
  );
}
