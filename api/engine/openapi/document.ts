import type { OperationSpec } from '../operation.js';
import { componentsOf } from './components.js';
import { GUIDE, TAGS, type GuideSection } from './guide.js';
import type { Making } from './making.js';
import { parametersOf } from './parameters.js';
import { COMMON_HEADERS, responsesOf } from './responses.js';
import { sampler } from './sample.js';
import type { OpenApiDocument, OpenApiExamples, OpenApiOperation } from './types.js';
import { workedExample } from './worked-example.js';

/** OpenAPI 3.1 of operations, from their specs and nothing else. Not cheap: once at start will do. */
export function openApiDocument(specs: readonly OperationSpec[]): OpenApiDocument {
  const components = componentsOf(specs);
  const worked = workedExample();
  const making: Making = {
    components,
    sample: sampler(components.schemas, worked),
    texts: { 'text/plain': worked.tlogProof },
  };
  const paths: OpenApiDocument['paths'] = {};
  for (const spec of specs) {
    paths[spec.path] = { ...paths[spec.path], [spec.method]: operationOf(spec, making) };
  }
  return {
    openapi: '3.1.1',
    jsonSchemaDialect: 'https://json-schema.org/draft/2020-12/schema',
    info: {
      title: 'Engine API',
      version: '1.0.0',
      summary: 'Admits executions, signs what was decided, and keeps the proofs.',
      description: GUIDE.map(markdownOf).join('\n\n'),
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'Where this document was served.' }],
    tags: Object.entries(TAGS)
      .filter(([name]) => specs.some(({ tag }) => tag === name))
      .map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: components.schemas,
      headers: COMMON_HEADERS,
      securitySchemes: {
        ApiKey: {
          type: 'apiKey',
          in: 'header',
          name: 'X-Svc-Api-Key',
          description: 'An engine key, `svc_sk_…`, issued by the operator after a review.',
        },
      },
    },
  };
}

function markdownOf({ title, text }: GuideSection): string {
  return [`## ${title}`, ...text].join('\n\n');
}

function operationOf(spec: OperationSpec, making: Making): OpenApiOperation {
  const { body, scopes } = spec;
  const needs =
    scopes.length > 0
      ? `Scope: ${scopes.map((scope) => `\`${scope}\``).join(' or ')}.`
      : 'No key is asked for.';
  return {
    operationId: spec.id,
    tags: [spec.tag],
    summary: spec.summary,
    description: [...(spec.description === undefined ? [] : [spec.description]), needs].join(
      '\n\n',
    ),
    // Alternatives: any one of these scopes will do, and `admin` is all of them.
    security:
      scopes.length > 0
        ? [...new Set([...scopes, 'admin'])].map((scope) => ({ ApiKey: [scope] }))
        : [],
    'x-scopes': scopes,
    parameters: parametersOf(spec, making.components),
    ...(body !== undefined && {
      requestBody: {
        required: true,
        ...(body.limit !== undefined && {
          description: `At most ${body.limit.toLocaleString('en')} bytes.`,
        }),
        content: {
          'application/json': {
            schema: making.components.refTo(body.schema),
            examples: valuesOf(body.examples),
          },
        },
      },
    }),
    responses: responsesOf(spec, making),
  };
}

function valuesOf(values: Record<string, unknown>): OpenApiExamples {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
}
