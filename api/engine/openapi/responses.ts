import { problemSchema } from '#protocol/schemas/problem';
import { problemsOf, type Content, type OperationSpec, type ResponseSpec } from '../operation.js';
import { PROBLEM_HEADERS, PROBLEM_MEMBERS } from '../http/problem-members.js';
import { Problem, problemDocument, PROBLEMS, type ProblemCode } from '../http/problem.js';
import type { JsonObject } from './json.js';
import type { Making } from './making.js';
import type { OpenApiContent, OpenApiHeader, OpenApiResponse } from './types.js';

/** Headers that answers of many operations have. */
export const COMMON_HEADERS: Record<string, OpenApiHeader> = {
  'X-Request-Id': {
    description: 'The id of this exchange: yours, if you sent a usable one.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9._~:@/+=-]{1,128}$' },
  },
  RateLimit: {
    description: 'How much of the quota is left, and for how many seconds.',
    schema: { type: 'string' },
  },
  'RateLimit-Policy': { description: 'The tenant’s quota.', schema: { type: 'string' } },
};

const RATE_HEADERS = ['RateLimit', 'RateLimit-Policy'];
const EXAMPLE_REQUEST_ID = '019aa2c1-e07b-7c0f-8a3e-5d6b7c8d9e0f';

/** Every status that an operation can answer with: its own answers, and its problems by status. */
export function responsesOf(spec: OperationSpec, making: Making): Record<string, OpenApiResponse> {
  const problems = problemsOf(spec);
  const statuses = new Set([
    ...Object.keys(spec.responses).map(Number),
    ...problems.map((code) => PROBLEMS[code][0]),
  ]);
  return Object.fromEntries(
    [...statuses]
      .sort((a, b) => a - b)
      .map((status) => {
        const codes = problems.filter((code) => PROBLEMS[code][0] === status);
        return [String(status), responseOf(spec, status, codes, making)];
      }),
  );
}

function responseOf(
  spec: OperationSpec,
  status: number,
  codes: readonly ProblemCode[],
  making: Making,
): OpenApiResponse {
  const own = spec.responses[status];
  const content = {
    ...(own && contentOf(own, making)),
    ...(codes.length > 0 && { 'application/problem+json': problemContent(status, codes, making) }),
  };
  // Who asks is known from here on, and so is the quota.
  const isCounted = spec.scopes.length > 0 && status !== 401;
  return {
    description: [
      ...(own ? [own.description] : []),
      ...codes.map((code) => `\`${code}\`: ${PROBLEMS[code][1]}.`),
    ].join('\n\n'),
    headers: {
      ...common('X-Request-Id', ...(isCounted ? RATE_HEADERS : [])),
      ...(status !== 401 && described(spec.answerHeaders)),
      ...(status === 304 && described({ ETag: 'The one that still holds.' })),
      ...described(spec.responses[status === 304 ? 200 : status]?.headers),
      ...Object.fromEntries(
        codes.flatMap((code) => Object.entries(described(PROBLEM_HEADERS[code]))),
      ),
    },
    ...(Object.keys(content).length > 0 && { content }),
    ...(codes.length > 0 && { 'x-codes': [...codes] }),
  };
}

function common(...names: string[]): OpenApiResponse['headers'] {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

function described(headers: Record<string, string> = {}): Record<string, OpenApiHeader> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, description]) => [
      name,
      { description, schema: { type: 'string' } },
    ]),
  );
}

function contentOf(response: ResponseSpec, making: Making): Record<string, OpenApiContent> {
  return Object.fromEntries(
    Object.entries(response.content ?? {}).map(([type, content]) => [
      type,
      mediaOf(type, content, response.example, making),
    ]),
  );
}

function mediaOf(type: string, content: Content, example: unknown, making: Making): OpenApiContent {
  if (content === 'binary') return {};
  if (content === 'text') {
    const value = example ?? making.texts[type];
    return {
      schema: { type: 'string' },
      ...(value !== undefined && { examples: { example: { value } } }),
    };
  }
  const schema = making.components.refTo(content);
  return { schema, examples: { example: { value: example ?? making.sample(schema) } } };
}

/** The problems of one status: which codes there are, and what each carries. */
function problemContent(
  status: number,
  codes: readonly ProblemCode[],
  making: Making,
): OpenApiContent {
  const plain = codes.filter((code) => PROBLEM_MEMBERS[code] === undefined);
  const kinds = [
    ...(plain.length > 0 ? [problemOf(status, plain, making)] : []),
    ...codes
      .filter((code) => PROBLEM_MEMBERS[code] !== undefined)
      .map((code) => problemOf(status, [code], making)),
  ];
  return {
    schema: kinds.length === 1 ? kinds[0]! : { oneOf: kinds },
    examples: Object.fromEntries(codes.map((code) => [code, { value: exampleOf(code, making) }])),
  };
}

function problemOf(status: number, codes: readonly ProblemCode[], making: Making): JsonObject {
  const members = codes.flatMap((code) => PROBLEM_MEMBERS[code] ?? []);
  return {
    type: 'object',
    allOf: [problemSchema, ...members].map((schema) => making.components.refTo(schema)),
    properties: {
      type: { enum: codes.map((code) => `urn:svc:problem:${code}`) },
      status: { const: status },
      code: { enum: [...codes] },
    },
  };
}

function exampleOf(code: ProblemCode, making: Making): unknown {
  const members = PROBLEM_MEMBERS[code];
  const problem = new Problem(code, `${PROBLEMS[code][1]}.`, {
    ...(members && {
      members: making.sample(making.components.refTo(members)) as Record<string, unknown>,
    }),
  });
  return problemDocument(problem, EXAMPLE_REQUEST_ID);
}
