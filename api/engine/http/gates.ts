import type { Request } from 'express';
import type { Caller } from './authenticate.js';
import type { EngineContext } from '../context.js';
import { Problem } from './problem.js';

export const SCOPES = ['admit', 'read', 'export', 'verify', 'lifecycle', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

const PRINTABLE_ASCII = /^[\x20-\x7e]{1,255}$/;

/** 423: the caller's environment is locked in the database or by ADMISSIONS_PAUSED. */
export function requireOpenLane(ctx: EngineContext, caller: Caller): void {
  if (ctx.admissionsPaused || !caller.laneOpen) {
    throw new Problem(
      'lane_locked',
      `The operator has locked admissions in the ${caller.environment} environment. Nothing was admitted. Send the request again later.`,
    );
  }
}

/** 403: the header must name the tenant that the key belongs to. */
export function requireTenantHeader(req: Request, caller: Caller): void {
  const tenantId = req.get('x-svc-tenant-id');
  if (tenantId === undefined) {
    throw new Problem(
      'tenant_header_missing',
      'X-Svc-Tenant-Id is missing. Send your tenant id in it.',
    );
  }
  if (tenantId !== caller.tenantId) {
    throw new Problem(
      'tenant_mismatch',
      'X-Svc-Tenant-Id does not name the tenant of this API key. Send the id of your own tenant.',
    );
  }
}

/** 403 unless the key has one of `scopes` or `admin`. */
export function requireScope(caller: Caller, scopes: readonly Scope[]): void {
  if (!hasScope(caller, scopes)) {
    throw new Problem(
      'scope_missing',
      `This operation requires the scope ${scopes.join(' or ')}. Use a key that has it.`,
    );
  }
}

export function hasScope(caller: Caller, scopes: readonly Scope[]): boolean {
  return [...scopes, 'admin'].some((scope) => caller.scopes.includes(scope));
}

/** 403 */
export function requireAllowlisted(caller: Caller): void {
  if (!caller.allowlisted) {
    throw new Problem(
      'tenant_not_allowlisted',
      'This tenant is not allowlisted for execution. Nothing was admitted. Contact the operator.',
    );
  }
}

/** 406, checked before any effect that the client could then not read about. */
export function requireAcceptable(req: Request, types: readonly [string, ...string[]]): string {
  const chosen = req.accepts([...types]);
  if (chosen === false) {
    throw new Problem(
      'not_acceptable',
      `Accept excludes every available media type. Accept ${types.join(' or ')}.`,
    );
  }
  return chosen;
}

/** 400: absent means v1. */
export function requireApiVersion(req: Request): void {
  const version = onlyOne(req, 'svc-api-version');
  if (version !== undefined && version !== 'v1') {
    throw new Problem(
      'unsupported_api_version',
      'The only API version is v1. Send svc-api-version: v1 or omit the header.',
    );
  }
}

/** The idempotency key, or null if absent. Throws 400 if invalid. */
export function readIdempotencyKey(req: Request): string | null {
  const key = onlyOne(req, 'x-svc-idempotency-key');
  if (key === undefined) return null;
  if (!PRINTABLE_ASCII.test(key)) {
    throw new Problem(
      'invalid_idempotency_key',
      'X-Svc-Idempotency-Key must be 1 to 255 characters of printable ASCII.',
    );
  }
  return key;
}

/** 403: the body names another tenant than the API key. */
export function requireOwnTenantInBody(tenantId: string, caller: Caller): void {
  if (tenantId !== caller.tenantId) {
    throw new Problem(
      'tenant_body_mismatch',
      'tenant_id does not name the tenant of this API key. Send the id of your own tenant.',
      {
        errors: [{ pointer: '/tenant_id', detail: 'must be the tenant of the API key' }],
      },
    );
  }
}

/** Rejects a repeated header: Node would join the values with a comma into one. */
function onlyOne(req: Request, name: string): string | undefined {
  // Fast path: headersDistinct parses all headers, which costs more than all other checks.
  if (req.get(name)?.includes(',') !== true) return req.get(name);
  const values = req.headersDistinct[name];
  if (values !== undefined && values.length > 1) {
    throw new Problem('duplicate_header', `The header ${name} is repeated. Send it once.`);
  }
  return values?.[0];
}
