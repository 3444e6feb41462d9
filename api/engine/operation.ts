import type { Request, RequestHandler, Response } from 'express';
import type * as z from 'zod';
import { STRICT_JSON_CODES } from '#protocol/errors';
import type { Scope } from '#protocol/schemas/api-keys';
import type { Pool } from '#sql/db/transaction';
import {
  type OperationSpec as DescribedOperation,
  type ResponseSpec,
  revalidated,
} from '../openapi/types.js';
import type { CheckRegistry, ReadDeclaredFacts } from './admission/registry-checks.js';
import type { Submit } from './admission/submit.js';
import type { EngineContext, QueryTenant } from './context.js';
import type { Authenticate, Caller } from './http/authenticate.js';
import type { ProblemCode } from './http/problem.js';
import { serveFixed } from './http/respond.js';

export interface EngineDeps {
  ctx: EngineContext;
  queryTenant: QueryTenant;
  authenticate: Authenticate;
  /** Throws a 503 while the queue of undecided admissions is full. */
  requireCapacity: () => Promise<void>;
  readDeclaredFacts: ReadDeclaredFacts;
  checkRegistry: CheckRegistry;
  submit: Submit;
}

export interface OperationSpec extends DescribedOperation<ProblemCode> {
  tag: 'Admission' | 'Proofs' | 'Verification' | 'Lifecycle' | 'Policies' | 'Keys' | 'Service';
  /** The caller needs any one of these scopes. Empty: the operation needs no API key. */
  scopes: readonly Scope[];
  /** Whether clients may send the API key as a bearer token; the tenant header is then optional. */
  acceptsBearer?: boolean;
  /** Media types of the successful response, the preferred one first. */
  produces: readonly [string, ...string[]];
}

export interface Operation {
  spec: OperationSpec;
  handler: (deps: EngineDeps) => RequestHandler;
}

export interface Call extends EngineDeps {
  req: Request;
  res: Response;
  caller: Caller;
  type: string;
  /** Runs queries for the caller's tenant, as `QueryTenant` does. */
  inTenant: <Args extends unknown[], T>(
    work: (sql: Pool, tenantNo: number, ...args: Args) => Promise<T>,
    ...args: Args
  ) => Promise<T>;
}

export type SpecOf = Omit<OperationSpec, 'problems' | 'produces'> &
  Partial<Pick<OperationSpec, 'problems' | 'produces'>>;

export function specOf(spec: SpecOf): OperationSpec {
  return { produces: ['application/json'], problems: [], ...spec };
}

export function json(
  description: string,
  schema: z.ZodType,
  headers?: Record<string, string>,
): ResponseSpec {
  return {
    description,
    content: { 'application/json': schema },
    ...(headers !== undefined && { headers }),
  };
}

/** The specification of an operation that needs no API key. */
export const publicSpec = (spec: Omit<SpecOf, 'method' | 'tag' | 'scopes'>): OperationSpec =>
  specOf({ ...spec, method: 'get', tag: 'Service', scopes: [] });

/**
 * An operation that serves the same text to everyone.
 *
 * @param policy the Content-Security-Policy of a page
 */
export function fixedOperation(
  spec: Pick<SpecOf, 'id' | 'path' | 'summary' | 'description'>,
  type: string,
  response: ResponseSpec,
  text: () => string,
  policy?: string,
): Operation {
  const typed = type.startsWith('text/') ? `${type}; charset=utf-8` : type;
  const handler = serveFixed(typed, text, policy);
  return {
    spec: publicSpec({
      ...spec,
      produces: [type],
      responses: revalidated(response),
    }),
    handler: () => handler,
  };
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

export const WITH_BODY: readonly ProblemCode[] = [
  'body_too_large',
  'unsupported_media_type',
  'unsupported_content_encoding',
  'incomplete_body',
  ...STRICT_JSON_CODES,
  'unsupported_schema_version',
  'missing_field',
  'unknown_field',
  'invalid_field',
];

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
