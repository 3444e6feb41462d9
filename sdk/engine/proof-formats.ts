import type * as z from 'zod';
import { fromUtf8 } from '../../protocol/bytes.js';
import { aepSchema, type Aep } from '../../protocol/schemas/aep.js';
import {
  type InclusionResponse,
  inclusionResponseSchema,
  type ProofExport,
  proofExportSchema,
} from '../../protocol/schemas/proof-export.js';
import { parseTlogProof } from '../../protocol/tlog-proof.js';
import { SdkError } from '../errors.js';
import { readProofDocument, requireType, unexpected } from '../http/answers.js';
import type { Answer } from '../http/attempt.js';
import type { HttpRequest } from '../http/client.js';
import type { EngineOptions } from '../options.js';
import { openEngine, requestEnvelope, requireProofId, type RequestHashEnvelope } from './engine.js';

type Formats<All> = {
  [F in keyof All]: { accept: string; read: (answer: Answer, proofId: string) => All[F] };
};

const jsonOf = <T extends { proof_id: string }>(schema: z.ZodType<T>) => ({
  accept: 'application/json',
  read: (answer: Answer, proofId: string) => readProofDocument(answer, schema, proofId),
});

const PDF_TYPE = 'application/pdf';
const PDF_START = [0x25, 0x50, 0x44, 0x46, 0x2d];

/** `json`: all inputs of offline verification; `aep-json`: only the signed AEP. */
export interface ExportFormats {
  json: ProofExport;
  'aep-json': Aep;
  /** The bytes of a PDF, with the JSON export attached. */
  pdf: Uint8Array;
}
/** One of the keys of {@link ExportFormats}. */
export type ExportFormat = keyof ExportFormats;

const EXPORT_FORMATS: Formats<ExportFormats> = {
  json: jsonOf(proofExportSchema),
  'aep-json': jsonOf(aepSchema),
  pdf: {
    accept: PDF_TYPE,
    read: (answer) => {
      requireType(answer, PDF_TYPE);
      if (!PDF_START.every((byte, at) => answer.bytes[at] === byte)) {
        throw unexpected(answer, 'the response is not a PDF');
      }
      return answer.bytes;
    },
  },
};

/**
 * `GET /v1/proofs/{proof_id}/export`: a proof to keep, by default as `json`. Throws `not_ready`
 * shortly after an admission, before verification and a signed checkpoint; both precede the public
 * verdict, so wait for that. `canonicalJson` of a JSON response is the file, byte for byte.
 */
export async function exportProofHttp<F extends ExportFormat = 'json'>(
  options: EngineOptions,
  input: { proof_id: string; format?: F },
): Promise<RequestHashEnvelope<ExportFormats[F]>> {
  const format = input.format ?? ('json' as F);
  return readInFormat(options, EXPORT_FORMATS, { ...input, format }, (proofId) => ({
    path: `/v1/proofs/${proofId}/export`,
    query: { format },
  }));
}

/** `json`: may have the `state` `pending_checkpoint`; `tlog-proof`: a C2SP `.tlog-proof`. */
export interface InclusionFormats {
  json: InclusionResponse;
  'tlog-proof': string;
}
/** One of the keys of {@link InclusionFormats}. */
export type InclusionFormat = keyof InclusionFormats;

const INCLUSION_FORMATS: Formats<InclusionFormats> = {
  json: jsonOf(inclusionResponseSchema),
  'tlog-proof': {
    accept: 'text/plain',
    read: (answer) => {
      requireType(answer, 'text/plain');
      try {
        const text = fromUtf8(answer.bytes);
        parseTlogProof(text);
        return text;
      } catch (cause) {
        throw unexpected(answer, 'the response is not a tlog-proof', cause);
      }
    },
  },
};

/**
 * `GET /v1/proofs/{proof_id}/inclusion`: the place of a proof in the log, and the signed checkpoint
 * over it. This call verifies neither: pass a `tlog-proof`, which is `not_ready` before a checkpoint
 * covers the proof, to `verifyTlogProof`.
 */
export async function getProofInclusionHttp<F extends InclusionFormat = 'json'>(
  options: EngineOptions,
  input: { proof_id: string; format?: F },
): Promise<RequestHashEnvelope<InclusionFormats[F]>> {
  const format = input.format ?? ('json' as F);
  return readInFormat(options, INCLUSION_FORMATS, { ...input, format }, (proofId) => ({
    path: `/v1/proofs/${proofId}/inclusion`,
  }));
}

async function readInFormat<All, F extends keyof All & string>(
  options: EngineOptions,
  formats: Formats<All>,
  { proof_id, format }: { proof_id: string; format: F },
  target: (proofId: string) => Pick<HttpRequest, 'path' | 'query'>,
): Promise<RequestHashEnvelope<All[F]>> {
  const engine = openEngine(options);
  const proofId = requireProofId(proof_id);
  if (!Object.hasOwn(formats, format)) {
    const message = `the format must be one of ${Object.keys(formats).join(', ')}`;
    throw new SdkError('invalid_input', message, { pointer: '/format' });
  }
  const { accept, read } = formats[format];
  const request = { method: 'GET', ...target(proofId), accept } as const;
  return requestEnvelope(engine, options, request, (answer) => read(answer, proofId));
}
