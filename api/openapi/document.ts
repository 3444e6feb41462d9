import { componentsOf, type Components } from './components.js';
import type { ApiDescription, GuideSection } from './description.js';
import type { Making } from './making.js';
import type { OperationSpec } from './operation-spec.js';
import { parametersOf } from './parameters.js';
import { responsesOf } from './responses.js';
import { sampler } from './sample.js';
import {
  type OpenApiContent,
  type OpenApiDocument,
  type OpenApiOperation,
  valuesOf,
} from './types.js';

/** Generates the OpenAPI 3.1 document. Expensive: call once at start. */
export function openApiDocument<Spec extends OperationSpec>(
  specs: readonly Spec[],
  api: ApiDescription<Spec>,
): OpenApiDocument {
  const components = componentsOf(specs, api);
  const making = { api, components, sample: sampler(components.schemas, api.worked) };
  const paths: OpenApiDocument['paths'] = {};
  for (const spec of specs) {
    paths[spec.path] = { ...paths[spec.path], [spec.method]: operationOf(spec, making) };
  }
  return {
    openapi: '3.1.1',
    jsonSchemaDialect: 'https://json-schema.org/draft/2020-12/schema',
    info: {
      title: api.title,
      version: '1.0.0',
      summary: api.summary,
      description: api.guide.map(markdownOf).join('\n\n'),
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

function markdownOf({ title, text }: GuideSection): string {
  return [`## ${title}`, ...text].join('\n\n');
}

function operationOf<Spec extends OperationSpec>(
  spec: Spec,
  making: Making<Spec>,
): OpenApiOperation {
  const { body } = spec;
  const { words, members } = making.api.access(spec);
  return {
    operationId: spec.id,
    tags: [spec.tag],
    summary: spec.summary,
    description: [spec.description, words].filter((text) => typeof text === 'string').join('\n\n'),
    ...members,
    parameters: parametersOf(spec, making),
    ...(body !== undefined && {
      requestBody: {
        required: true,
        ...(body.limit !== undefined && {
          description: `At most ${body.limit.toLocaleString('en')} bytes.`,
        }),
        content: {
          'application/json': {
            schema: making.components.bodyRefTo(body.schema),
            examples: valuesOf(body.examples),
          },
          ...otherTypes(body, making.components),
        },
      },
    }),
    responses: responsesOf(spec, making),
  };
}

function otherTypes(
  { alsoAs = {} }: NonNullable<OperationSpec['body']>,
  components: Components,
): Record<string, OpenApiContent> {
  return Object.fromEntries(
    Object.entries(alsoAs).map(([type, content]) => [
      type,
      { schema: typeof content === 'string' ? { type: 'string' } : components.bodyRefTo(content) },
    ]),
  );
}
