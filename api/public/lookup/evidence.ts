import { evidenceSchema } from '#protocol/evidence/document';
import { lookupRequestSchema } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { snapshotEntrySchema } from '#protocol/schemas/log-entry';
import { BODY_LIMIT } from '../http/problem.js';
import { exampleEvidence } from '../openapi/examples.js';
import { revalidated, type Operation } from '../operation.js';
import { handledByFastPath, lookup, SNAPSHOT_PROBLEMS } from './operations.js';
import { postLookup } from './routes.js';

const PATH = '/api/public/evidence';

const response = {
  description: 'The evidence, also when the identifier is not found.',
  content: { 'application/json': evidenceSchema.extend({ snapshot: snapshotEntrySchema }) },
  example: exampleEvidence,
};

export const EVIDENCE_OPERATIONS: readonly Operation[] = [
  {
    spec: lookup({
      id: 'evidence',
      tag: 'Log',
      path: `${PATH}/{identifier}`,
      summary: 'Get the evidence of an answer',
      description:
        'Proves, from the signed log, the answers about this identifier or its absence. ' +
        'Resolves identifiers of any age.',
      responses: revalidated(response),
    }),
    handler: handledByFastPath,
  },
  {
    spec: lookup({
      id: 'evidenceByBody',
      method: 'post',
      tag: 'Log',
      path: PATH,
      summary: 'Get the evidence of an answer, with the identifier in the body',
      description: 'Read-only. The same as the path with the identifier.',
      body: {
        schema: lookupRequestSchema,
        limit: BODY_LIMIT,
        examples: {
          any: { schema_version: SCHEMA.lookupRequest, identifier: exampleEvidence.identifier },
        },
      },
      responses: { 200: response },
      problems: ['identifier_missing', 'identifier_ambiguous', ...SNAPSHOT_PROBLEMS],
    }),
    handler: (exchange) => postLookup(exchange, { view: 'evidence' }),
  },
];
