import * as z from 'zod';

/** The subset of OpenAPI 3.1 in use. */
export interface OpenApiDocument extends JsonObject {
  info: JsonObject & { title: string; version: string; summary: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, OpenApiOperation>>;
  components: JsonObject & {
    schemas: Record<string, JsonObject>;
    headers: Record<string, OpenApiHeader>;
  };
}

export interface OpenApiOperation extends JsonObject {
  operationId: string;
  tags: string[];
  summary: string;
  description: string;
  parameters: OpenApiParameter[];
  requestBody?: { required: true; content: Record<string, OpenApiContent> };
  responses: Record<string, OpenApiResponse>;
  /** Any one of them is enough. Absent in an API without keys. */
  'x-scopes'?: readonly string[];
}

export interface OpenApiParameter extends JsonObject {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description?: string;
  schema: JsonObject;
}

export interface OpenApiHeader extends JsonObject {
  description: string;
  schema: JsonObject;
}

export type OpenApiExamples = Record<string, { value: unknown }>;

export interface OpenApiContent extends JsonObject {
  /** Absent for bytes without a schema. */
  schema?: JsonObject;
  examples?: OpenApiExamples;
}

export interface OpenApiResponse extends JsonObject {
  description: string;
  headers: Record<string, OpenApiHeader | { $ref: string }>;
  content?: Record<string, OpenApiContent>;
  'x-codes'?: string[];
}

export type JsonObject = Record<string, unknown>;

export const COMPONENT = '#/components/schemas/';

/** The component's name in `{"$ref": "#/components/schemas/Name"}`; null for anything else. */
export function componentOf(schema: unknown): string | null {
  if (schema === null || typeof schema !== 'object') return null;
  const { $ref } = schema as { $ref?: unknown };
  return typeof $ref === 'string' && $ref.startsWith(COMPONENT)
    ? $ref.slice(COMPONENT.length)
    : null;
}

export function headerParameter(
  name: string,
  description: string,
  schema: JsonObject = { type: 'string' },
): OpenApiParameter {
  return { name, in: 'header', required: false, description, schema };
}

/** Type and pattern of a string schema. */
export function plainSchema(schema: z.ZodType): JsonObject {
  const { type, pattern } = z.toJSONSchema(schema);
  return { type, pattern };
}
