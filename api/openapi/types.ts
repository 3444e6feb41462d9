import * as z from 'zod';
import { REQUEST_ID_FORM } from '#runtime/http/request-ids';

/** Schema of a body in one media type, or bytes without a schema. */
export type Content = z.ZodType | 'text' | 'binary';

export interface ResponseSpec {
  description: string;
  /** The body by media type; absent for a response without a body. */
  content?: Record<string, Content>;
  /** Headers of this response only, as name and description. */
  headers?: Record<string, string>;
  example?: unknown;
  examples?: Record<string, unknown>;
}

export const ETAG_HEADER = { ETag: 'A strong validator; send it in `If-None-Match`.' };

/** The 200 and 304 responses of an operation that sends an ETag. */
export const revalidated = (response: ResponseSpec): Record<200 | 304, ResponseSpec> => ({
  200: { ...response, headers: { ...response.headers, ...ETAG_HEADER } },
  304: { description: 'Not modified: the sent ETag is current.' },
});

/** Specification of one operation. The OpenAPI document is generated from these specifications only. */
export interface OperationSpec<Code extends string = string> {
  id: string;
  method: 'get' | 'post' | 'delete';
  /** The path in OpenAPI's syntax, such as `/v1/proofs/{proof_id}`. */
  path: string;
  tag: string;
  summary: string;
  description?: string;
  /** Query parameters; each arrives as a string, which the schema may transform. */
  query?: z.ZodObject;
  /** Request headers besides the common ones, with descriptions. */
  headers?: Record<string, string>;
  /** Headers of any response, including problems, with descriptions. */
  answerHeaders?: Record<string, string>;
  body?: {
    schema: z.ZodType;
    examples: Record<string, unknown>;
    /** Size limit in bytes; absent: the API's default. */
    limit?: number;
    alsoAs?: Record<string, Content>;
    /** Codes of the problems for an invalid body, in place of the default codes. */
    problems?: readonly Code[];
  };
  responses: Record<number, ResponseSpec>;
  /** Problems besides those common to this kind of operation. */
  problems: readonly Code[];
}

export interface GuideSection {
  id: string;
  title: string;
  /** Paragraphs; one that begins with "- " is an item of a list. Backticks mark code. */
  text: readonly string[];
}

/** Sample values for the generated examples, consistent with each other. */
export interface WorkedExample {
  /** Whole documents, by the name of their component. */
  documents: Record<string, unknown>;
  /** Single values, by member name. */
  members: Record<string, unknown>;
  /** Text that is not JSON, by media type. */
  texts: Record<string, string>;
}

export type ProblemTable = Record<string, readonly [status: number, title: string]>;

export interface ApiDescription<Spec extends OperationSpec> {
  title: string;
  summary: string;
  guide: readonly GuideSection[];
  /** Clients must ignore unknown members, except in signed or hashed documents. */
  answersMayGainMembers: boolean;
  tags: Record<string, string>;
  problems: {
    table: ProblemTable;
    schema: z.ZodType;
    members: Partial<Record<string, z.ZodObject>>;
    headers: Partial<Record<string, Record<string, string>>>;
    of(spec: Spec): readonly string[];
    example(code: string, members?: Record<string, unknown>): unknown;
  };
  inPath: Record<string, { description?: string; schema?: JsonObject }>;
  /** Schemas of the request headers that do not accept every string, by header name. */
  headerSchemas: Record<string, JsonObject>;
  requestHeadersOf(spec: Spec): OpenApiParameter[];
  commonHeaders: Record<string, OpenApiHeader>;
  commonHeadersOf(spec: Spec, status: number): readonly string[];
  /** Authorization of an operation, in words and as OpenAPI members. */
  access(spec: Spec): { words: string | null; members: JsonObject };
  securitySchemes: JsonObject | null;
  worked: WorkedExample;
}

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
  /** Scopes, of which any one is enough. Absent for an API without keys. */
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
  /** Absent when the body is bytes, which have no schema. */
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

const REQUEST_ID_SCHEMA = { type: 'string', pattern: REQUEST_ID_FORM.source };
/** The request header of both APIs that names a request, and its echo in the response. */
export const REQUEST_ID = headerParameter(
  'X-Request-Id',
  'Your id for this request, which the response echoes. A generated id replaces an id that does not match the pattern.',
  REQUEST_ID_SCHEMA,
);
export const REQUEST_ID_HEADER = {
  description: 'The id of this request: yours, if you sent a valid one.',
  schema: REQUEST_ID_SCHEMA,
};

/** The JSON Schema of a string, reduced to type and pattern. */
export function plainSchema(schema: z.ZodType): JsonObject {
  const { type, pattern } = z.toJSONSchema(schema);
  return { type, pattern };
}
