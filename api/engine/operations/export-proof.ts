import type { Request, Response } from 'express';
import * as z from 'zod';
import { canonicalBytes } from '#protocol/canonical-json';
import { aepSchema } from '#protocol/schemas/aep';
import { proofExportSchema } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/proof-record';
import type { Caller } from '../http/authenticate.js';
import { authorize } from '../http/authorize.js';
import { exportAep, exportDocument } from '../proofs/export-document.js';
import { exportPdf } from '../proofs/export-pdf.js';
import { addLogFields } from '../http/request-context.js';
import { requireAcceptable } from '../http/gates.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { parseQuery } from '../http/paging.js';
import { sendRevalidatable } from '../http/send-json.js';

type Bytes = Uint8Array;

interface Format {
  /** Media types of the same bytes, the preferred one first. */
  types: readonly [string, ...string[]];
  fileName: (proofId: string) => string;
  make: (deps: EngineDeps, caller: Caller, proofId: string) => Promise<Bytes>;
}

const FORMATS = {
  json: {
    types: ['application/json'],
    fileName: (proofId) => `proof-${proofId}.json`,
    make: async (deps, caller, proofId) =>
      canonicalBytes(await exportDocument(deps, caller, proofId)),
  },
  'aep-json': {
    types: [AEP_PAYLOAD_TYPE, 'application/json'],
    fileName: (proofId) => `aep-${proofId}.json`,
    make: exportAep,
  },
  pdf: {
    types: ['application/pdf'],
    fileName: (proofId) => `${proofId}.pdf`,
    make: exportPdf,
  },
} as const satisfies Record<string, Format>;

const FORMAT_NAMES = Object.keys(FORMATS) as (keyof typeof FORMATS)[];

const querySchema = z.strictObject({
  format: z.enum(FORMAT_NAMES, `expected one of ${FORMAT_NAMES.join(', ')}`).default('json'),
});

const spec: OperationSpec = {
  id: 'exportProof',
  method: 'get',
  path: '/v1/proofs/{proof_id}/export',
  tag: 'Proofs',
  summary: 'Export a proof',
  description:
    '`json` contains everything needed to verify the proof offline, and its current verdict; ' +
    '`aep-json` is the signed AEP, byte for byte as it was hashed; `pdf` is a document for people ' +
    'with the `json` export attached. `curl -OJ` saves the file under its name.',
  scopes: ['export'],
  query: querySchema,
  produces: ['application/json', AEP_PAYLOAD_TYPE, 'application/pdf'],
  responses: {
    200: {
      description: 'The proof as a file.',
      content: {
        // Clients that accept only application/json get the AEP under this type.
        'application/json': z.union([proofExportSchema, aepSchema]),
        [AEP_PAYLOAD_TYPE]: aepSchema,
        'application/pdf': 'binary',
      },
      headers: {
        ETag: 'Strong; send it back in `If-None-Match`.',
        'Content-Disposition': 'Attachment with a file name made from the proof id.',
      },
    },
    304: { description: 'Not changed since the ETag that was sent.' },
  },
  problems: [
    'invalid_query',
    'proof_not_found',
    'pending_verdict',
    'pending_checkpoint',
    'payload_erased',
    'integrity_failure',
    'renderer_busy',
    'render_timeout',
  ],
};

export const exportOperation: Operation = { spec, handler: exportProof };

function exportProof(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const format: Format = FORMATS[parseQuery(querySchema, req).format];
    const type = requireAcceptable(req, format.types);
    const proofId = String(req.params['proof_id']);
    const body = await format.make(deps, caller, proofId);
    addLogFields(res, { proofId });
    res.setHeader('Content-Disposition', `attachment; filename="${format.fileName(proofId)}"`);
    sendRevalidatable(req, res, type, body);
  };
}
