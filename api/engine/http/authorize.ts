import type { Request, Response } from 'express';
import type { Caller } from './authenticate.js';
import {
  requireAcceptable,
  requireApiVersion,
  requireScope,
  requireTenantHeader,
} from './gates.js';
import type { EngineDeps, OperationSpec } from '../operation.js';

/** Checks of every operation except admissions, in the order 401, 429, 403, 400, 406. */
export async function authorize(
  { authenticate }: EngineDeps,
  spec: OperationSpec,
  req: Request,
  res: Response,
): Promise<{ caller: Caller; type: string }> {
  const caller = await authenticate(req, res);
  requireTenantHeader(req, caller);
  requireScope(caller, spec.scopes);
  requireApiVersion(req);
  return { caller, type: requireAcceptable(req, spec.produces) };
}
