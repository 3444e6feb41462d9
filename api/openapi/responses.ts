import {
  type JsonObject,
  type OpenApiContent,
  type OpenApiHeader,
  type OpenApiResponse,
  valuesOf,
} from './types.js';
import type { Making } from './making.js';
import type { Content, OperationSpec, ResponseSpec } from './operation-spec.js';

/** All responses of an operation: successful ones, and problems grouped by status. */
export function responsesOf<Spec extends OperationSpec>(
  spec: Spec,
  making: Making<Spec>,
): Record<string, OpenApiResponse> {
  const problems = making.api.problems.of(spec);
  const statusOf = (code: string): number => entryOf(code, making)[0];
  const statuses = new Set([...Object.keys(spec.responses).map(Number), ...problems.map(statusOf)]);
  return Object.fromEntries(
    [...statuses]
      .sort((a, b) => a - b)
      .map((status) => {
        const codes = problems.filter((code) => statusOf(code) === status);
        return [String(status), responseOf(spec, status, codes, making)];
      }),
  );
}

function entryOf<Spec extends OperationSpec>(
  code: string,
  { api }: Making<Spec>,
): readonly [status: number, title: string] {
  const entry = api.problems.table[code];
  if (entry === undefined) throw new Error(`unknown problem code ${code}`);
  return entry;
}

function responseOf<Spec extends OperationSpec>(
  spec: Spec,
  status: number,
  codes: readonly string[],
  making: Making<Spec>,
): OpenApiResponse {
  const { api } = making;
  const own = spec.responses[status];
  const content = {
    ...(own && contentOf(own, making)),
    ...(codes.length > 0 && { 'application/problem+json': problemContent(status, codes, making) }),
  };
  return {
    description: [
      ...(own ? [own.description] : []),
      ...codes.map((code) => `\`${code}\`: ${entryOf(code, making)[1]}.`),
    ].join('\n\n'),
    headers: {
      ...common(api.commonHeadersOf(spec, status)),
      ...(status !== 401 && described(spec.answerHeaders)),
      ...(status === 304 && described({ ETag: 'The ETag that is still current.' })),
      ...described(spec.responses[status === 304 ? 200 : status]?.headers),
      ...Object.fromEntries(
        codes.flatMap((code) => Object.entries(described(api.problems.headers[code]))),
      ),
    },
    ...(Object.keys(content).length > 0 && { content }),
    ...(codes.length > 0 && { 'x-codes': [...codes] }),
  };
}

function common(names: readonly string[]): OpenApiResponse['headers'] {
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

function contentOf<Spec extends OperationSpec>(
  response: ResponseSpec,
  making: Making<Spec>,
): Record<string, OpenApiContent> {
  return Object.fromEntries(
    Object.entries(response.content ?? {}).map(([type, content]) => [
      type,
      mediaOf(type, content, response, making),
    ]),
  );
}

function mediaOf<Spec extends OperationSpec>(
  type: string,
  content: Content,
  { example, examples }: ResponseSpec,
  making: Making<Spec>,
): OpenApiContent {
  if (content === 'binary') return {};
  if (content === 'text') {
    const value = example ?? making.api.worked.texts[type];
    return {
      schema: { type: 'string' },
      ...(value !== undefined && { examples: { example: { value } } }),
    };
  }
  const schema = making.components.refTo(content);
  return {
    schema,
    examples: valuesOf(examples ?? { example: example ?? making.sample(schema) }),
  };
}

/** Schema and examples of all problems of one status. */
function problemContent<Spec extends OperationSpec>(
  status: number,
  codes: readonly string[],
  making: Making<Spec>,
): OpenApiContent {
  const { members } = making.api.problems;
  const plain = codes.filter((code) => members[code] === undefined);
  const kinds = [
    ...(plain.length > 0 ? [problemOf(status, plain, making)] : []),
    ...codes
      .filter((code) => members[code] !== undefined)
      .map((code) => problemOf(status, [code], making)),
  ];
  return {
    schema: kinds.length === 1 ? kinds[0]! : { oneOf: kinds },
    examples: valuesOf(Object.fromEntries(codes.map((code) => [code, exampleOf(code, making)]))),
  };
}

function problemOf<Spec extends OperationSpec>(
  status: number,
  codes: readonly string[],
  making: Making<Spec>,
): JsonObject {
  const { problems } = making.api;
  const members = codes.flatMap((code) => problems.members[code] ?? []);
  return {
    type: 'object',
    allOf: [problems.schema, ...members].map((schema) => making.components.refTo(schema)),
    properties: {
      type: { enum: codes.map((code) => `urn:svc:problem:${code}`) },
      status: { const: status },
      code: { enum: [...codes] },
    },
  };
}

function exampleOf<Spec extends OperationSpec>(code: string, making: Making<Spec>): unknown {
  const { problems } = making.api;
  const members = problems.members[code];
  if (members === undefined) return problems.example(code);
  const sample = making.sample(making.components.refTo(members));
  return problems.example(code, sample as Record<string, unknown>);
}
