import { aepSchema, type Aep } from '../../protocol/schemas/aep.js';
import { proofExportSchema, type ProofExport } from '../../protocol/schemas/proof-export.js';
import { readDocument, requireType, unexpected } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import type { RequestHashEnvelope } from './envelope.js';
import { proofInFormat, type Formats } from './in-format.js';
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

const JSON_TYPE = 'application/json';
const PDF_TYPE = 'application/pdf';
const PDF_START = [0x25, 0x50, 0x44, 0x46, 0x2d];

const FORMATS: Formats<ExportFormats> = {
  json: {
    accept: JSON_TYPE,
    read: (answer, proofId) =>
      requireSame(answer, proofId, readDocument(answer, proofExportSchema)),
  },
  'aep-json': {
    accept: JSON_TYPE,
    read: (answer, proofId) => requireSame(answer, proofId, readDocument(answer, aepSchema)),
  },
  pdf: {
    accept: PDF_TYPE,
    read: (answer) => {
      requireType(answer, PDF_TYPE);
      if (!PDF_START.every((byte, at) => answer.bytes[at] === byte)) {
        throw unexpected(answer, 'the answer is not a PDF');
      }
      return answer.bytes;
    },
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
  const format = input.format ?? ('json' as F);
  return proofInFormat(options, FORMATS, { proof_id: input.proof_id, format }, (proofId) => ({
    path: `/v1/proofs/${proofId}/export`,
    query: { format },
  }));
}
