import { fromUtf8 } from '../../protocol/bytes.js';
import {
  inclusionResponseSchema,
  type InclusionResponse,
} from '../../protocol/schemas/inclusion.js';
import { parseTlogProof } from '../../protocol/tlog-proof.js';
import { SdkError } from '../errors.js';
import type { Answer } from '../http/attempt.js';
import { withDeadline } from '../http/deadline.js';
import { readDocument, requireType, unexpected } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { enveloped, type RequestHashEnvelope } from './envelope.js';
import { requireProofId } from './receipt.js';
import { requireSame } from './require-same.js';

/** `json`: with `state`, which may be `pending_checkpoint`; `tlog-proof`: a C2SP `.tlog-proof`. */
export interface InclusionFormats {
  json: InclusionResponse;
  'tlog-proof': string;
}
/** One of the keys of {@link InclusionFormats}. */
export type InclusionFormat = keyof InclusionFormats;

const READ: { [F in InclusionFormat]: (answer: Answer, proofId: string) => InclusionFormats[F] } = {
  json: (answer, proofId) =>
    requireSame(answer, proofId, readDocument(answer, inclusionResponseSchema)),
  'tlog-proof': (answer) => {
    requireType(answer, 'text/plain');
    try {
      const text = fromUtf8(answer.bytes);
      parseTlogProof(text);
      return text;
    } catch (cause) {
      throw unexpected(answer, 'the answer is not a tlog-proof', cause);
    }
  },
};

/**
 * `GET /v1/proofs/{proof_id}/inclusion`: where the proof is in the log, and under which signed
 * checkpoint. It is not checked here; as `tlog-proof`, which is `not_ready` until a checkpoint covers
 * it, it can be checked with `verifyTlogProof`.
 */
export async function getProofInclusionHttp<F extends InclusionFormat = 'json'>(
  options: EngineOptions,
  input: { proof_id: string; format?: F },
): Promise<RequestHashEnvelope<InclusionFormats[F]>> {
  const engine = openEngine(options);
  const proofId = requireProofId(input.proof_id);
  const format = input.format ?? ('json' as F);
  if (!Object.hasOwn(READ, format)) {
    throw new SdkError('invalid_input', `no such format: ${Object.keys(READ).join(', ')}`, {
      pointer: '/format',
    });
  }
  const request = {
    method: 'GET',
    path: `/v1/proofs/${proofId}/inclusion`,
    accept: format === 'json' ? 'application/json' : 'text/plain',
  } as const;
  return withDeadline(options, (deadline) =>
    enveloped(engine, request, deadline, (answer) => READ[format](answer, proofId)),
  );
}
