import { SCHEMA } from '#protocol/schemas/ids';
import { verdictSchema } from '#protocol/schemas/verdict';
import { verifyBodySchema } from '#protocol/schemas/proof-export';
import { EXAMPLE_PROOF_ID, exampleExport } from '../../openapi/example-export.js';
import { parseBody, readBody } from '../http/parse-body.js';
import { addLogFields } from '../http/request-context.js';
import { sendJson } from '../http/respond.js';
import { json } from '../operation.js';
import { tenantOperation } from '../http/gates.js';
import { submissionOf } from './submission.js';
import { verification } from './verification.js';

/** Bytes. An export contains its AEP three times, twice in base64: about 6 KiB, far more with long names. */
export const SUBMISSION_LIMIT = 256 * 1024;

export const verifyOperation = tenantOperation(
  {
    id: 'verifyProof',
    method: 'post',
    path: '/v1/proofs/verify',
    tag: 'Verification',
    summary: 'Verify a proof',
    description:
      'Takes an unchanged JSON export (the file attached to a PDF is one), an AEP with its envelope, ' +
      'or a proof id. The response lists every check by name. A proof of another tenant is ' +
      'NOT_FOUND, like one that does not exist.',
    scopes: ['verify'],
    body: {
      schema: verifyBodySchema,
      examples: {
        by_id: { schema_version: SCHEMA.verifyRequest, proof_id: EXAMPLE_PROOF_ID },
        by_aep: {
          schema_version: SCHEMA.verifyRequest,
          aep: exampleExport.aep,
          envelope: exampleExport.envelope,
        },
        export: exampleExport,
      },
      limit: SUBMISSION_LIMIT,
    },
    responses: {
      200: json('The verdict, positive or negative: check `can_assert_validity`.', verdictSchema),
    },
  },
  async ({ ctx, inTenant, req, res }) => {
    const { document } = parseBody(verifyBodySchema, await readBody(req, SUBMISSION_LIMIT));
    const submission = submissionOf(document);
    addLogFields(res, { proofId: submission.proofId });
    const verdict = await inTenant((sql, tenantNo) => verification(ctx, sql, tenantNo, submission));
    sendJson(res, 200, verdict);
  },
);
