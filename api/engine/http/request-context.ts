import type { NextFunction, Request, RequestHandler, Response } from 'express';
import { v7 as uuidv7 } from 'uuid';
import { newProofId } from '#protocol/ids';
import { requestIdFrom } from '#runtime/http/request-ids';
import type { Tracing } from '#runtime/ops/tracing';
import { securityHeaders } from '../../http/responses.js';
import type { EngineContext } from '../context.js';

/** `same-origin`: tenants' data must not load into pages of other origins. */
export const SECURITY_HEADERS = securityHeaders('same-origin');
const SECURITY_HEADER_NAMES = Object.keys(SECURITY_HEADERS) as (keyof typeof SECURITY_HEADERS)[];

interface LogFields {
  /** The documented path; null for an unknown path. Never the raw path, which may hold a share token. */
  route: string | null;
  key_id: string;
  tenant_id: string;
  proof_id: string;
  batch_id: string;
  revocation_id: string;
  /** `tenant`: the request exceeded a limit of its own tenant. */
  limit: 'tenant';
}

type Locals = Partial<LogFields> & { request_id: string };

function localsOf(res: Response): Locals {
  return res.locals as Locals;
}

export function requestIdOf(res: Response): string {
  return localsOf(res).request_id;
}

const traces = new WeakMap<Response, ReturnType<Tracing['begin']>>();

/** The trace context of a sampled request; null otherwise. */
export const traceparentOf = (res: Response): string | null => traces.get(res)?.traceparent ?? null;

/** Adds fields to the request's access log line. Never secrets, never payload. */
export function addLogFields(res: Response, fields: Partial<LogFields>): void {
  Object.assign(localsOf(res), fields);
}

/** First middleware: request id, common headers, metrics and the access log line. */
export function requestContext({
  log,
  metrics,
  tracing,
}: Pick<EngineContext, 'log' | 'metrics' | 'tracing'>): RequestHandler {
  return (req: Request, res: Response, next: NextFunction) => {
    const started = performance.now();
    const locals = localsOf(res);
    locals.request_id = requestIdFrom(req.headers['x-request-id']);
    locals.route = null;
    const span = tracing?.begin(req.get('traceparent'));
    if (span !== undefined) traces.set(res, span);
    res.setHeader('X-Request-Id', locals.request_id);
    for (const name of SECURITY_HEADER_NAMES) res.setHeader(name, SECURITY_HEADERS[name]);
    res.setHeader('Cache-Control', 'no-store');
    res.once('close', () => {
      const status = res.headersSent ? res.statusCode : null;
      const ms = performance.now() - started;
      metrics?.answered(locals.route ?? null, req.method, status, locals.limit ?? '', ms);
      span?.end(`${req.method} ${locals.route ?? 'unknown'}`, {
        'http.request.method': req.method,
        'http.route': locals.route ?? '',
        'http.response.status_code': status ?? 499,
        ...(locals.proof_id !== undefined && { proof_id: locals.proof_id }),
        ...(locals.batch_id !== undefined && { batch_id: locals.batch_id }),
        request_id: locals.request_id,
      });
      const outcome = status === null ? { disconnected: true } : { status };
      log.info(
        { ...locals, method: req.method, ...outcome, ms: Math.round(ms * 10) / 10 },
        'request',
      );
    });
    next();
  };
}

/** A new registry id in hex: a UUIDv7 that contains the log's shard number, always 0. */
export function newUuidHex(): string {
  return newProofId(uuidv7());
}
