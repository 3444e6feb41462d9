import type { NextFunction, Request, RequestHandler, Response } from 'express';
import { v7 as uuidv7 } from 'uuid';
import { isRequestId } from '#runtime/http/request-ids';
import { securityHeaders } from '../../http/security-headers.js';
import type { EngineContext } from '../context.js';

/** `same-origin`: tenants' data must not load into pages of other origins. */
export const SECURITY_HEADERS = securityHeaders('same-origin');
const SECURITY_HEADER_NAMES = Object.keys(SECURITY_HEADERS) as (keyof typeof SECURITY_HEADERS)[];

interface Locals {
  requestId: string;
  keyId?: string;
  tenantId?: string;
  proofId?: string;
  batchId?: string;
  revocationId?: string;
  /** The documented path; absent for an unknown one. */
  route?: string;
}

function localsOf(res: Response): Locals {
  return res.locals as Locals;
}

export function requestIdOf(res: Response): string {
  return localsOf(res).requestId;
}

/** Adds fields to the request's access log line. Never secrets, never payload. */
export function addLogFields(res: Response, fields: Partial<Omit<Locals, 'requestId'>>): void {
  Object.assign(localsOf(res), fields);
}

/** First middleware: request id, common headers, metrics and the access log line. */
export function requestContext({
  log,
  metrics,
}: Pick<EngineContext, 'log' | 'metrics'>): RequestHandler {
  return (req: Request, res: Response, next: NextFunction) => {
    const started = performance.now();
    const sent = req.get('x-request-id');
    const locals = localsOf(res);
    locals.requestId = sent !== undefined && isRequestId(sent) ? sent : uuidv7();
    res.setHeader('X-Request-Id', locals.requestId);
    for (const name of SECURITY_HEADER_NAMES) res.setHeader(name, SECURITY_HEADERS[name]);
    res.setHeader('Cache-Control', 'no-store');
    res.once('close', () => {
      const status = res.headersSent ? res.statusCode : null;
      metrics?.answered(locals.route ?? null, req.method, status, performance.now() - started);
      log.info(
        {
          request_id: locals.requestId,
          method: req.method,
          // Never the raw path: a client may put a share token into it.
          route: locals.route ?? null,
          ...(res.headersSent ? { status: res.statusCode } : { disconnected: true }),
          ms: Math.round((performance.now() - started) * 10) / 10,
          ...(locals.keyId !== undefined && { key_id: locals.keyId }),
          ...(locals.tenantId !== undefined && { tenant_id: locals.tenantId }),
          ...(locals.proofId !== undefined && { proof_id: locals.proofId }),
          ...(locals.batchId !== undefined && { batch_id: locals.batchId }),
          ...(locals.revocationId !== undefined && { revocation_id: locals.revocationId }),
        },
        'request',
      );
    });
    next();
  };
}
