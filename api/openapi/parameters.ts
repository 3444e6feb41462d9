import * as z from 'zod';
import type { JsonObject, OpenApiParameter } from './types.js';
import type { Making } from './making.js';
import type { OperationSpec } from './operation-spec.js';

export function parametersOf<Spec extends OperationSpec>(
  spec: Spec,
  making: Making<Spec>,
): OpenApiParameter[] {
  const { api } = making;
  return [
    ...pathParameters(spec, making),
    ...queryParameters(spec, making),
    ...api.requestHeadersOf(spec),
    ...('304' in spec.responses ? [IF_NONE_MATCH] : []),
    ...Object.entries(spec.headers ?? {}).map(([name, description]) =>
      headerParameter(name, description, api.headerSchemas[name]),
    ),
  ];
}

function pathParameters<Spec extends OperationSpec>(
  { path }: Spec,
  { api }: Making<Spec>,
): OpenApiParameter[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => {
    const { description, schema } = api.inPath[name] ?? {};
    return {
      name,
      in: 'path',
      required: true,
      ...(description !== undefined && { description }),
      schema: { type: 'string', ...schema },
    };
  });
}

function queryParameters<Spec extends OperationSpec>(
  spec: Spec,
  { components }: Making<Spec>,
): OpenApiParameter[] {
  const { properties, required } = components.query(spec);
  return Object.entries(properties).map(([name, { description, ...schema }]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    ...(typeof description === 'string' && { description }),
    schema,
  }));
}

export function headerParameter(
  name: string,
  description: string,
  schema: JsonObject = { type: 'string' },
): OpenApiParameter {
  return { name, in: 'header', required: false, description, schema };
}

const IF_NONE_MATCH = headerParameter(
  'If-None-Match',
  'A known `ETag`: 304 if it is still current.',
);

/** Type and pattern of a string schema. */
export function plainSchema(schema: z.ZodType): JsonObject {
  const { type, pattern } = z.toJSONSchema(schema);
  return { type, pattern };
}
