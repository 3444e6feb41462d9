import type { RequestHandler } from 'express';
import type { z } from 'zod';
import type { Answer } from './admission/answer.js';
import type { Authenticate } from './http/authenticate.js';
import type { Backpressure } from './admission/backpressure.js';
import type { EngineContext } from './context.js';
import type { Scope } from './http/gates.js';
import type { OpenApiDocument } from './openapi/types.js';
import type { ProblemCode } from './http/problem.js';
import type { Submit } from './admission/submit.js';

/** What the handlers share, made once per engine. */
export interface EngineDeps {
  ctx: EngineContext;
  authenticate: Authenticate;
  backpressure: Backpressure;
  submit: Submit;
  answer: Answer;
  /** What is served, as OpenAPI. */
  openApi: OpenApiDocument;
}

/** A body as one media type has it: a document's schema, or bytes that no schema describes. */
export type Content = z.ZodType | 'text' | 'binary';

export interface ResponseSpec {
  description: string;
  /** By media type; absent when the answer has no body. */
  content?: Record<string, Content>;
  /** Headers that only this answer has, each with what it says. */
  headers?: Record<string, string>;
  example?: unknown;
}

/** One operation as it is documented. The served OpenAPI is made of these and of nothing else. */
export interface OperationSpec {
  /** operationId */
  id: string;
  method: 'get' | 'post' | 'delete';
  /** As OpenAPI writes it: `/v1/proofs/{proof_id}`. */
  path: string;
  tag: 'Admission' | 'Proofs' | 'Verification' | 'Lifecycle' | 'Service';
  summary: string;
  description?: string;
  /** A key with any one of them will do; none: no key is asked for. */
  scopes: readonly Scope[];
  /** Members are strings, as they are sent. */
  query?: z.ZodObject;
  /** Request headers besides those that every operation takes. */
  headers?: Record<string, string>;
  /** Headers that any answer may have, problems too, each with what it says. */
  answerHeaders?: Record<string, string>;
  body?: {
    schema: z.ZodType;
    examples: Record<string, unknown>;
    /** The largest one, in bytes; absent: the engine's own limit. */
    limit?: number;
  };
  /** Media types of the successful answer, the preferred one first. */
  produces: readonly [string, ...string[]];
  /** Every answer that is not a problem, by status. */
  responses: Record<number, ResponseSpec>;
  /** Problems of its own, besides those that its kind of operation has (`problemsOf`). */
  problems: readonly ProblemCode[];
}

export interface Operation {
  spec: OperationSpec;
  handler: (deps: EngineDeps) => RequestHandler;
}

const KEYED: readonly ProblemCode[] = [
  'unauthenticated',
  'rate_limited',
  'tenant_header_missing',
  'tenant_mismatch',
  'scope_missing',
  'unsupported_api_version',
  'duplicate_header',
  'not_acceptable',
  'internal_error',
  'database_unavailable',
];

const WITH_BODY: readonly ProblemCode[] = [
  'body_too_large',
  'unsupported_media_type',
  'unsupported_content_encoding',
  'incomplete_body',
  'invalid_utf8',
  'malformed_json',
  'duplicate_key',
  'lone_surrogate',
  'nul_character',
  'integer_out_of_range',
  'too_deep',
  'unsupported_schema_version',
  'missing_field',
  'unknown_field',
  'invalid_field',
];

/** Every problem that an operation can answer with: what its kind has, and its own. */
export function problemsOf(spec: OperationSpec): ProblemCode[] {
  return [
    ...new Set([
      ...(spec.path.includes('{') ? (['malformed_path'] as const) : []),
      ...(spec.scopes.length > 0 ? KEYED : []),
      ...(spec.body === undefined ? [] : WITH_BODY),
      ...spec.problems,
    ]),
  ];
}

/** A path as the router writes it: `/v1/proofs/:proof_id`. */
export function routePath(spec: OperationSpec): string {
  return spec.path.replaceAll(/\{(\w+)\}/g, ':$1');
}
