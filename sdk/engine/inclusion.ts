import { fromUtf8 } from '../../protocol/bytes.js';
import {
  inclusionResponseSchema,
  type InclusionResponse,
} from '../../protocol/schemas/inclusion.js';
import { parseTlogProof } from '../../protocol/tlog-proof.js';
import { readDocument, requireType, unexpected } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import type { RequestHashEnvelope } from './envelope.js';
import { proofInFormat, type Formats } from './in-format.js';
import { requireSame } from './require-same.js';

/** `json`: with `state`, which may be `pending_checkpoint`; `tlog-proof`: a C2SP `.tlog-proof`. */
export interface InclusionFormats {
  json: InclusionResponse;
  'tlog-proof': string;
}
/** One of the keys of {@link InclusionFormats}. */
export type InclusionFormat = keyof InclusionFormats;

const FORMATS: Formats<InclusionFormats> = {
  json: {
    accept: 'application/json',
    read: (answer, proofId) =>
      requireSame(answer, proofId, readDocument(answer, inclusionResponseSchema)),
  },
  'tlog-proof': {
    accept: 'text/plain',
    read: (answer) => {
      requireType(answer, 'text/plain');
      try {
        const text = fromUtf8(answer.bytes);
        parseTlogProof(text);
        return text;
      } catch (cause) {
        throw unexpected(answer, 'the answer is not a tlog-proof', cause);
      }
    },
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
  const format = input.format ?? ('json' as F);
  return proofInFormat(options, FORMATS, { proof_id: input.proof_id, format }, (proofId) => ({
    path: `/v1/proofs/${proofId}/inclusion`,
  }));
}
