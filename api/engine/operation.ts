import type { RequestHandler } from 'express';
import type { Answer } from './admission/answer.js';
import type { Authenticate } from './http/authenticate.js';
import type { Backpressure } from './admission/backpressure.js';
import type { EngineContext } from './context.js';
import type { Scope } from './http/gates.js';
import type { OperationSpec as DescribedOperation } from '../openapi/operation-spec.js';
import type { OpenApiDocument } from '../openapi/types.js';
import type { ProblemCode } from './http/problem.js';
import type { Submit } from './admission/submit.js';

/** Shared by all handlers, created once per engine. */
export interface EngineDeps {
  ctx: EngineContext;
  authenticate: Authenticate;
  backpressure: Backpressure;
  submit: Submit;
  answer: Answer;
  openApi: OpenApiDocument;
}

/** Specification of one operation. The OpenAPI document is generated from these alone. */
export interface OperationSpec extends DescribedOperation<ProblemCode> {
  tag: 'Admission' | 'Proofs' | 'Verification' | 'Lifecycle' | 'Service';
  /** Any one of them is enough. Empty: no API key needed. */
  scopes: readonly Scope[];
  /** Media types of the successful response, the preferred one first. */
  produces: readonly [string, ...string[]];
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
  'tenant_busy',
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

/** All problems of an operation: those of its kind and its own. */
export function problemsOf(spec: OperationSpec): ProblemCode[] {
  return [
    ...new Set([
      ...(spec.path.includes('{') ? (['malformed_path'] as const) : []),
      ...(spec.scopes.length > 0 ? KEYED : []),
      ...(spec.body === undefined ? [] : (spec.body.problems ?? WITH_BODY)),
      ...spec.problems,
    ]),
  ];
}

/** The path in Express syntax: `/v1/proofs/:proof_id`. */
export function routePath(spec: OperationSpec): string {
  return spec.path.replaceAll(/\{(\w+)\}/g, ':$1');
}
