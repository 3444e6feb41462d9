import { aepSchema, type Aep } from '../../protocol/schemas/aep.js';
import { proofExportSchema, type ProofExport } from '../../protocol/schemas/proof-export.js';
import type { Answer } from '../http/attempt.js';
import { withDeadline } from '../http/deadline.js';
import { readDocument, requireType, unexpected } from '../http/documents.js';
import { SdkError } from '../errors.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { enveloped, type RequestHashEnvelope } from './envelope.js';
import { requireProofId } from './receipt.js';
import { requireSame } from './require-same.js';

/** What each format is: all for checking offline, the signed AEP alone, or a paper for people. */
export interface ExportFormats {
  json: ProofExport;
  'aep-json': Aep;
  /** The bytes of a PDF, with the export inside it as a file. */
  pdf: Uint8Array;
}
/** One of the keys of {@link ExportFormats}. */
export type ExportFormat = keyof ExportFormats;

const READ: { [F in ExportFormat]: (answer: Answer, proofId: string) => ExportFormats[F] } = {
  json: (answer, proofId) => requireSame(answer, proofId, readDocument(answer, proofExportSchema)),
  'aep-json': (answer, proofId) => requireSame(answer, proofId, readDocument(answer, aepSchema)),
  pdf: (answer) => {
    requireType(answer, 'application/pdf');
    const starts = [0x25, 0x50, 0x44, 0x46, 0x2d];
    if (!starts.every((byte, at) => answer.bytes[at] === byte)) {
      throw unexpected(answer, 'the answer is not a PDF');
    }
    return answer.bytes;
  },
};

/**
 * `GET /v1/proofs/{proof_id}/export`: a proof to keep, in `format` (`json` when absent). Just after
 * an admission it may be `not_ready`: not verified, or under no signed checkpoint yet; the public
 * verdict comes later than both, so wait for that. `canonicalJson` of a JSON format's response is
 * the file, byte for byte.
 */
export async function exportProofHttp<F extends ExportFormat = 'json'>(
  options: EngineOptions,
  input: { proof_id: string; format?: F },
): Promise<RequestHashEnvelope<ExportFormats[F]>> {
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
    path: `/v1/proofs/${proofId}/export`,
    query: { format },
    accept: format === 'pdf' ? 'application/pdf' : 'application/json',
  } as const;
  return withDeadline(options, (deadline) =>
    enveloped(engine, request, deadline, (answer) => READ[format](answer, proofId)),
  );
}
