import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { SCHEMA } from '#protocol/schemas/ids';
import { verdictSchema } from '#protocol/schemas/verdict';
import { verifyBodySchema } from '#protocol/schemas/verify-request';
import { authorize } from '../http/authorize.js';
import { EXAMPLE_PROOF_ID, exampleExport } from '../../openapi/example-export.js';
import { addLogFields } from '../http/request-context.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { parseBody, readBody } from '../http/parse-body.js';
import { sendJson } from '../http/send-json.js';
import { submissionOf } from '../verification/submission.js';
import { verification } from '../verification/verification.js';

/** Bytes. An export contains its AEP three times, twice in base64: about 6 KiB, far more with long names. */
export const SUBMISSION_LIMIT = 256 * 1024;

const spec: OperationSpec = {
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
  produces: ['application/json'],
  responses: {
    200: {
      description: 'The verdict, positive or negative: check `can_assert_validity`.',
      content: { 'application/json': verdictSchema },
    },
  },
  problems: [],
};

export const verifyOperation: Operation = { spec, handler: verify };

function verify(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const { document } = parseBody(verifyBodySchema, await readBody(req, SUBMISSION_LIMIT));
    const submission = submissionOf(document);
    addLogFields(res, { proofId: submission.proofId });
    const verdict = await deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
      verification(deps.ctx, sql, caller, submission),
    );
    sendJson(res, 200, canonicalBytes(verdict));
  };
}
