import { PACKAGE_ID_PATTERN, PROOF_ID_PATTERN } from '#protocol/ids';
import { idempotencyKeySchema } from '#protocol/schemas/admission';
import { HASH_PATTERN, tenantIdSchema } from '#protocol/schemas/primitives';
import { problemSchema } from '#protocol/schemas/problem';
import type { ApiDescription } from '../../openapi/description.js';
import { openApiDocument } from '../../openapi/document.js';
import { headerParameter, plainSchema, type OpenApiDocument } from '../../openapi/types.js';
import {
  Problem,
  PROBLEM_HEADERS,
  PROBLEM_MEMBERS,
  type ProblemCode,
  PROBLEMS,
} from '../http/problem.js';
import { problemsOf, type OperationSpec } from '../operation.js';
import { GUIDE, TAGS } from './guide.js';
import { workedExample } from './worked-example.js';

const RATE_HEADERS = ['RateLimit', 'RateLimit-Policy'];
const EXAMPLE_REQUEST_ID = '019aa2c1-e07b-7c0f-8a3e-5d6b7c8d9e0f';

const REQUEST_ID = headerParameter(
  'X-Request-Id',
  'Your id for this request. The response echoes it.',
);
const KEYED = [
  {
    ...headerParameter(
      'X-Svc-Tenant-Id',
      'Your tenant id, which must match the API key.',
      plainSchema(tenantIdSchema),
    ),
    required: true,
  },
  headerParameter('svc-api-version', 'The contract version. Default: `v1`.', {
    type: 'string',
    enum: ['v1'],
  }),
];

export function engineOpenApi(specs: readonly OperationSpec[]): OpenApiDocument {
  return openApiDocument(specs, engineDescription());
}

function engineDescription(): ApiDescription<OperationSpec> {
  return {
    title: 'Engine API',
    summary: 'Admits executions, signs the decisions and keeps the proofs.',
    guide: GUIDE,
    answersMayGainMembers: true,
    tags: TAGS,
    problems: {
      table: PROBLEMS,
      schema: problemSchema,
      members: PROBLEM_MEMBERS,
      headers: PROBLEM_HEADERS,
      of: problemsOf,
      example: (code, members) => {
        const known = code as ProblemCode;
        const options = members === undefined ? {} : { members };
        const problem = new Problem(known, `${PROBLEMS[known][1]}.`, options);
        return problem.document(EXAMPLE_REQUEST_ID);
      },
    },
    inPath: {
      proof_id: pattern(PROOF_ID_PATTERN),
      package_id: pattern(PACKAGE_ID_PATTERN),
      token_hash: pattern(HASH_PATTERN),
    },
    headerSchemas: { 'X-Svc-Idempotency-Key': plainSchema(idempotencyKeySchema) },
    requestHeadersOf: ({ scopes }) => [...(scopes.length > 0 ? KEYED : []), REQUEST_ID],
    commonHeaders: {
      'X-Request-Id': {
        description: 'The id of this request: yours, if you sent a valid one.',
        schema: { type: 'string', pattern: '^[A-Za-z0-9._~:@/+=-]{1,128}$' },
      },
      RateLimit: {
        description: 'Remaining quota, and seconds until it resets.',
        schema: { type: 'string' },
      },
      'RateLimit-Policy': { description: 'The tenant’s quota.', schema: { type: 'string' } },
    },
    // The quota is known once the caller is authenticated.
    commonHeadersOf: ({ scopes }, status) => [
      'X-Request-Id',
      ...(scopes.length > 0 && status !== 401 ? RATE_HEADERS : []),
    ],
    access: ({ scopes }) => ({
      words:
        scopes.length > 0
          ? `Scope: ${scopes.map((scope) => `\`${scope}\``).join(' or ')}.`
          : 'No API key needed.',
      members: {
        // Alternatives: any one of these scopes is enough, and `admin` includes all.
        security:
          scopes.length > 0
            ? [...new Set([...scopes, 'admin'])].map((scope) => ({ ApiKey: [scope] }))
            : [],
        'x-scopes': scopes,
      },
    }),
    securitySchemes: {
      ApiKey: {
        type: 'apiKey',
        in: 'header',
        name: 'X-Svc-Api-Key',
        description: 'An engine key, `svc_sk_…`, issued by the operator after a review.',
      },
    },
    worked: workedExample(),
  };
}

function pattern({ source }: RegExp): { schema: { pattern: string } } {
  return { schema: { pattern: source } };
}
