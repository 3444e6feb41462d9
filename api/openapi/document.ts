import { componentsOf, type Components, sampler } from './components.js';
import {
  type ApiDescription,
  type Content,
  type OperationSpec,
  type ResponseSpec,
  headerParameter,
  type JsonObject,
  type OpenApiContent,
  type OpenApiDocument,
  type OpenApiExamples,
  type OpenApiHeader,
  type OpenApiOperation,
  type OpenApiParameter,
  type OpenApiResponse,
} from './types.js';

/** Generates the OpenAPI 3.1 document. Expensive: call it once. */
export function openApiDocument<Spec extends OperationSpec>(
  specs: readonly Spec[],
  api: ApiDescription<Spec>,
): OpenApiDocument {
  const components = componentsOf(specs, api);
  const writer = new OperationWriter(api, components);
  const paths: OpenApiDocument['paths'] = {};
  for (const spec of specs) {
    paths[spec.path] = { ...paths[spec.path], [spec.method]: writer.operation(spec) };
  }
  return {
    openapi: '3.1.1',
    jsonSchemaDialect: 'https://json-schema.org/draft/2020-12/schema',
    info: {
      title: api.title,
      version: '1.0.0',
      summary: api.summary,
      description: api.guide.flatMap(({ title, text }) => [`## ${title}`, ...text]).join('\n\n'),
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'The host that serves this document.' }],
    tags: Object.entries(api.tags)
      .filter(([name]) => specs.some(({ tag }) => tag === name))
      .map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: components.schemas,
      headers: api.commonHeaders,
      ...(api.securitySchemes !== null && { securitySchemes: api.securitySchemes }),
    },
  };
}

const IF_NONE_MATCH = headerParameter(
  'If-None-Match',
  '`ETag` of an earlier response: 304 if it is still current.',
);

/** Writes the operations of an API; `components` has their schemas. */
class OperationWriter<Spec extends OperationSpec> {
  private readonly sample: ReturnType<typeof sampler>;

  constructor(
    private readonly api: ApiDescription<Spec>,
    private readonly components: Components,
  ) {
    this.sample = sampler(components.schemas, api.worked);
  }

  operation(spec: Spec): OpenApiOperation {
    const { words, members } = this.api.access(spec);
    return {
      operationId: spec.id,
      tags: [spec.tag],
      summary: spec.summary,
      description: [spec.description, words]
        .filter((text) => typeof text === 'string')
        .join('\n\n'),
      ...members,
      parameters: [
        ...this.pathParameters(spec),
        ...this.queryParameters(spec),
        ...this.api.requestHeadersOf(spec),
        ...('304' in spec.responses ? [IF_NONE_MATCH] : []),
        ...Object.entries(spec.headers ?? {}).map(([name, description]) =>
          headerParameter(name, description, this.api.headerSchemas[name]),
        ),
      ],
      ...(spec.body !== undefined && { requestBody: this.requestBody(spec.body) }),
      responses: this.responses(spec),
    };
  }

  private pathParameters({ path }: Spec): OpenApiParameter[] {
    return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => {
      const { schema, ...description } = this.api.inPath[name] ?? {};
      return {
        name,
        in: 'path',
        required: true,
        ...description,
        schema: { type: 'string', ...schema },
      };
    });
  }

  private queryParameters(spec: Spec): OpenApiParameter[] {
    const { properties, required } = this.components.query(spec);
    return Object.entries(properties).map(([name, { description, ...schema }]) => ({
      name,
      in: 'query',
      required: required.includes(name),
      ...(typeof description === 'string' && { description }),
      schema,
    }));
  }

  private requestBody({ schema, examples, limit, alsoAs = {} }: NonNullable<Spec['body']>) {
    const { bodyRefTo } = this.components;
    const others = Object.entries(alsoAs).map(([type, content]) => [
      type,
      { schema: typeof content === 'string' ? { type: 'string' } : bodyRefTo(content) },
    ]);
    return {
      required: true as const,
      ...(limit !== undefined && { description: `At most ${limit.toLocaleString('en')} bytes.` }),
      content: {
        'application/json': { schema: bodyRefTo(schema), examples: valuesOf(examples) },
        ...(Object.fromEntries(others) as Record<string, OpenApiContent>),
      },
    };
  }

  private responses(spec: Spec): Record<string, OpenApiResponse> {
    const problems = this.api.problems.of(spec);
    const statuses = new Set([
      ...Object.keys(spec.responses).map(Number),
      ...problems.map((code) => this.entryOf(code)[0]),
    ]);
    return Object.fromEntries(
      [...statuses]
        .sort((a, b) => a - b)
        .map((status) => {
          const codes = problems.filter((code) => this.entryOf(code)[0] === status);
          return [String(status), this.response(spec, status, codes)];
        }),
    );
  }

  private entryOf(code: string): readonly [status: number, title: string] {
    const entry = this.api.problems.table[code];
    if (entry === undefined) throw new Error(`unknown problem code ${code}`);
    return entry;
  }

  private response(spec: Spec, status: number, codes: readonly string[]): OpenApiResponse {
    const own = spec.responses[status];
    const content: Record<string, OpenApiContent> = {};
    for (const [type, one] of Object.entries(own?.content ?? {})) {
      content[type] = this.media(type, one, own!);
    }
    if (codes.length > 0) content['application/problem+json'] = this.problemContent(status, codes);
    return {
      description: [
        ...(own ? [own.description] : []),
        ...codes.map((code) => `\`${code}\`: ${this.entryOf(code)[1]}.`),
      ].join('\n\n'),
      headers: {
        ...Object.fromEntries(
          this.api
            .commonHeadersOf(spec, status)
            .map((name) => [name, { $ref: `#/components/headers/${name}` }]),
        ),
        ...headersOf({
          ...(status !== 401 && spec.answerHeaders),
          ...(status === 304 && { ETag: 'The ETag that is still current.' }),
          ...spec.responses[status === 304 ? 200 : status]?.headers,
          ...Object.fromEntries(
            codes.flatMap((code) => Object.entries(this.api.problems.headers[code] ?? {})),
          ),
        }),
      },
      ...(Object.keys(content).length > 0 && { content }),
      ...(codes.length > 0 && { 'x-codes': [...codes] }),
    };
  }

  private media(type: string, content: Content, response: ResponseSpec): OpenApiContent {
    const { example, examples } = response;
    if (content === 'binary') return {};
    if (content === 'text') {
      const value = example ?? this.api.worked.texts[type];
      return {
        schema: { type: 'string' },
        ...(value !== undefined && { examples: { example: { value } } }),
      };
    }
    const schema = this.components.refTo(content);
    return {
      schema,
      examples: valuesOf(examples ?? { example: example ?? this.sample(schema) }),
    };
  }

  private problemContent(status: number, codes: readonly string[]): OpenApiContent {
    const { members } = this.api.problems;
    const plain = codes.filter((code) => members[code] === undefined);
    const special = codes.filter((code) => members[code] !== undefined).map((code) => [code]);
    const groups = plain.length > 0 ? [plain, ...special] : special;
    const kinds = groups.map((group) => this.problemSchema(status, group));
    const examples = codes.map((code) => [code, { value: this.problemExample(code) }]);
    return {
      schema: kinds.length === 1 ? kinds[0]! : { oneOf: kinds },
      examples: Object.fromEntries(examples) as OpenApiExamples,
    };
  }

  private problemSchema(status: number, codes: readonly string[]): JsonObject {
    const { schema, members } = this.api.problems;
    const all = [schema, ...codes.flatMap((code) => members[code] ?? [])];
    return {
      type: 'object',
      allOf: all.map(this.components.refTo),
      properties: {
        type: { enum: codes.map((code) => `urn:svc:problem:${code}`) },
        status: { const: status },
        code: { enum: [...codes] },
      },
    };
  }

  private problemExample(code: string): unknown {
    const { problems } = this.api;
    const schema = problems.members[code];
    const members = schema && this.sample(this.components.refTo(schema));
    return problems.example(code, members as Record<string, unknown> | undefined);
  }
}

function headersOf(headers: Record<string, string>): Record<string, OpenApiHeader> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, description]) => [
      name,
      { description, schema: { type: 'string' } },
    ]),
  );
}

function valuesOf(values: Record<string, unknown>): OpenApiExamples {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
}
