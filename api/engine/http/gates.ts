import type { Request, RequestHandler, Response } from 'express';
import type * as z from 'zod';
import type { Scope } from '#protocol/schemas/api-keys';
import {
  specOf,
  type Call,
  type EngineDeps,
  type Operation,
  type OperationSpec,
  type SpecOf,
} from '../operation.js';
import { requireKeyEnvironment } from '../admission/key-restriction.js';
import { readSingleHeader, type Caller } from './authenticate.js';
import { parseBody, readBody } from './parse-body.js';
import { at, Problem } from './problem.js';

/** Checks of admissions and batches before the body is read. The OpenAPI guide has their order. */
export async function authorizeAdmission(
  { authenticate, ctx, requireCapacity }: EngineDeps,
  spec: OperationSpec,
  req: Request,
  res: Response,
): Promise<Caller> {
  const { acceptsBearer = false } = spec;
  const bearer = acceptsBearer ? bearerKey(req) : undefined;
  const caller = await authenticate(req, res, bearer).catch((error: unknown) => {
    const isRejected = error instanceof Problem && error.code === 'unauthenticated';
    throw acceptsBearer && isRejected ? bearerProblem() : error;
  });
  if (ctx.admissionsPaused || !caller.environmentOpen) {
    throw new Problem(
      'lane_locked',
      `The operator has locked admissions in the ${caller.environment} environment. This request admitted nothing, but an earlier attempt may have. Send the request again later.`,
    );
  }
  if (bearer === undefined || req.get('x-svc-tenant-id') !== undefined) {
    requireTenantHeader(req, caller);
  }
  requireScope(caller, spec.scopes);
  requireKeyEnvironment(caller);
  if (!caller.allowlisted) throw new Problem('tenant_not_allowlisted');
  await requireCapacity();
  return caller;
}

/** The API key in an Authorization header (RFC 6750). */
function bearerKey(req: Request): string | undefined {
  const bearer = /^Bearer +(\S+) *$/i.exec(req.get('authorization') ?? '')?.[1];
  if (bearer !== undefined && req.get('x-svc-api-key') !== undefined) {
    throw new Problem('duplicate_header', 'Send the API key in one header only.');
  }
  return bearer;
}

/** RFC 6750 requires the challenge `Bearer`. */
const bearerProblem = (): Problem =>
  new Problem(
    'unauthenticated',
    'Send a valid engine key as a bearer token, or in X-Svc-Api-Key.',
    { headers: { 'WWW-Authenticate': 'Bearer realm="engine", ApiKey realm="engine"' } },
  );

/** Checks of admissions and batches after the body is read. Returns the idempotency key. */
export function readAdmissionHeaders(req: Request, spec: OperationSpec): string | null {
  requireAcceptable(req, spec.produces);
  requireApiVersion(req);
  const key = readSingleHeader(req, 'x-svc-idempotency-key');
  if (key !== undefined && !/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw new Problem('invalid_idempotency_key');
  }
  return key ?? null;
}

export function hasScope(caller: Caller, scopes: readonly Scope[]): boolean {
  return [...scopes, 'admin'].some((scope) => caller.scopes.includes(scope));
}

/** Throws a 406, before the request has an effect, if the client accepts none of the media types. */
export function requireAcceptable(req: Request, types: readonly [string, ...string[]]): string {
  const chosen = req.accepts([...types]);
  if (chosen === false) {
    throw new Problem(
      'not_acceptable',
      `The header Accept excludes every available media type. Accept ${types.join(' or ')}.`,
    );
  }
  return chosen;
}

function requireTenantHeader(req: Request, caller: Caller): void {
  const tenantId = readSingleHeader(req, 'x-svc-tenant-id');
  if (tenantId === undefined) throw new Problem('tenant_header_missing');
  if (tenantId !== caller.tenantId) throw new Problem('tenant_mismatch');
}

/** Rejects a body whose `tenant_id`, at this pointer, is not the caller's. */
export function requireOwnTenant(caller: Caller, tenantId: string, pointer = '/tenant_id'): void {
  if (tenantId === caller.tenantId) return;
  throw new Problem('tenant_body_mismatch', at(pointer, 'must be the tenant of the API key'));
}

function requireScope(caller: Caller, scopes: readonly Scope[]): void {
  if (!hasScope(caller, scopes)) {
    throw new Problem(
      'scope_missing',
      `This operation requires the scope ${scopes.join(' or ')}. Use a key that has it.`,
    );
  }
}

function requireApiVersion(req: Request): void {
  const version = readSingleHeader(req, 'svc-api-version');
  if (version !== undefined && version !== 'v1') throw new Problem('unsupported_api_version');
}

/**
 * An operation with the checks of every operation except admissions, in the order 401, 429, 403, 400,
 * 406. Admissions have more checks, in another order.
 */
export function tenantOperation(partial: SpecOf, handle: (call: Call) => Promise<void>): Operation {
  const spec = specOf(partial);
  const handler = (deps: EngineDeps): RequestHandler => {
    return async (req, res) => {
      const caller = await deps.authenticate(req, res);
      requireTenantHeader(req, caller);
      requireScope(caller, spec.scopes);
      requireApiVersion(req);
      const type = requireAcceptable(req, spec.produces);
      const { tenantNo } = caller;
      const inTenant: Call['inTenant'] = (work, ...args) =>
        deps.queryTenant(tenantNo, work, ...args);
      await handle({ ...deps, req, res, caller, type, inTenant });
    };
  };
  return { spec, handler };
}

/** An operation whose handler gets the parsed body. `version`: as for `parseBody`. */
export function documentOperation<T>(
  spec: SpecOf & { body: { schema: z.ZodType<T> } },
  handle: (call: Call, document: T) => Promise<void>,
  version?: string,
): Operation {
  const { limit, schema } = spec.body;
  return tenantOperation(spec, async (call) => {
    const bytes = await readBody(call.req, limit);
    await handle(call, parseBody(schema, bytes, version));
  });
}
