import type { Request } from 'express';
import type { Caller } from './authenticate.js';
import type { EngineContext } from '../context.js';
import { Problem } from './problem.js';

/** What a key may be good for. */
export const SCOPES = ['admit', 'read', 'export', 'verify', 'lifecycle', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

const PRINTABLE_ASCII = /^[\x20-\x7e]{1,255}$/;

/** 423: the lane of the caller's environment is closed, in the database or by this process' operator. */
export function requireOpenLane(ctx: EngineContext, caller: Caller): void {
  if (ctx.admissionsPaused || !caller.laneOpen) {
    throw new Problem(
      'lane_locked',
      `Execution is locked in the ${caller.environment} environment. Nothing was admitted.`,
    );
  }
}

/** 403: the header must name the tenant that the key belongs to. */
export function requireTenantHeader(req: Request, caller: Caller): void {
  const tenantId = req.get('x-svc-tenant-id');
  if (tenantId === undefined) {
    throw new Problem('tenant_header_missing', 'Send your tenant id in X-Svc-Tenant-Id.');
  }
  if (tenantId !== caller.tenantId) {
    throw new Problem('tenant_mismatch', 'X-Svc-Tenant-Id is not the tenant of this API key.');
  }
}

/** 403: one of `scopes` is enough, and `admin` is all of them. */
export function requireScope(caller: Caller, scopes: readonly Scope[]): void {
  if (!hasScope(caller, scopes)) {
    throw new Problem('scope_missing', `This needs a key with the scope ${scopes.join(' or ')}.`);
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
      'This tenant is not yet allowlisted for execution. Nothing was admitted.',
    );
  }
}

/** 406: before anything is done that could then not be told. */
export function requireAcceptable(req: Request, types: readonly [string, ...string[]]): string {
  const chosen = req.accepts([...types]);
  if (chosen === false) {
    throw new Problem('not_acceptable', `This is available as ${types.join(' or ')}.`);
  }
  return chosen;
}

/** 400: absent means v1. */
export function requireApiVersion(req: Request): void {
  const version = onlyOne(req, 'svc-api-version');
  if (version !== undefined && version !== 'v1') {
    throw new Problem('unsupported_api_version', 'Send svc-api-version: v1, or leave it out.');
  }
}

/** 400, or the key that the client wants enforced; null when it sent none. */
export function readIdempotencyKey(req: Request): string | null {
  const key = onlyOne(req, 'x-svc-idempotency-key');
  if (key === undefined) return null;
  if (!PRINTABLE_ASCII.test(key)) {
    throw new Problem(
      'invalid_idempotency_key',
      'X-Svc-Idempotency-Key is 1 to 255 characters of printable ASCII.',
    );
  }
  return key;
}

/** 403: a body that speaks for another tenant than its key does. */
export function requireOwnTenantInBody(tenantId: string, caller: Caller): void {
  if (tenantId !== caller.tenantId) {
    throw new Problem('tenant_body_mismatch', 'tenant_id is not the tenant of this API key.', {
      errors: [{ pointer: '/tenant_id', detail: 'must be the tenant of the API key' }],
    });
  }
}

/** Node joins repeated headers with a comma, which would make one value of two. */
function onlyOne(req: Request, name: string): string | undefined {
  // Without a comma it is one value. Taking all headers apart to see that costs more than the gates.
  if (req.get(name)?.includes(',') !== true) return req.get(name);
  const values = req.headersDistinct[name];
  if (values !== undefined && values.length > 1) {
    throw new Problem('duplicate_header', `Send ${name} once.`);
  }
  return values?.[0];
}
