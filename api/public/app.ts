import express, { type ErrorRequestHandler, type Express, type Request } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CACHE_NEVER, send, sendFailure, sendProblem } from './http/answer.js';
import type { PublicContext } from './context.js';
import { Problem } from './http/problem.js';
import { pathPattern, type Operation } from './operation.js';
import { OPERATIONS } from './operations.js';
import { unreadable } from './snapshot/serving.js';
import { decoded, handleLookup } from './lookup/routes.js';

/** The public API as an Express app. It also serves lookups, which the server's fast path normally takes. */
export function createApp(ctx: PublicContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');

  app.use((req, res, next) => {
    if (!handleLookup(ctx, req, res)) next();
  });
  for (const served of byPath(OPERATIONS)) mount(ctx, app, served);
  app.use((req) => {
    throw new Problem(
      'route_not_found',
      `The public API has no route ${req.path}. See /docs for all routes.`,
    );
  });
  const onError: ErrorRequestHandler = (error: unknown, req, res, next) => {
    if (res.headersSent) next(error);
    else sendFailure(ctx, req, res, error, unreadable, null);
  };
  app.use(onError);
  return app;
}

type Served = [Operation, ...Operation[]];

function byPath(operations: readonly Operation[]): Served[] {
  const paths = new Map<string, Served>();
  for (const operation of operations) {
    const known = paths.get(operation.spec.path);
    if (known === undefined) paths.set(operation.spec.path, [operation]);
    else known.push(operation);
  }
  return [...paths.values()];
}

/** Mounts one Express route for each path, so that 405 and OPTIONS can list its methods. */
function mount(ctx: PublicContext, app: Express, served: Served): void {
  const [{ spec: shared }] = served;
  const route = app.route(pathPattern(shared));
  route.all((_req, res, next) => {
    res.locals['route'] = shared.path;
    next();
  });
  for (const { spec, handler } of served) {
    route[spec.method]((req, res) => handler(ctx, req, res, lastOf(shared.path, req)));
  }
  const methods = served.map(({ spec }) => spec.method.toUpperCase());
  const allow = methods
    .flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
    .concat('OPTIONS')
    .join(', ');
  route.options((req, res) => answerOptions(ctx, req, res, allow));
  route.all((req, res) => {
    const detail = `${req.path} supports ${allow}.`;
    const problem = new Problem('method_not_allowed', detail, { headers: { Allow: allow } });
    sendProblem(ctx, req, res, problem);
  });
}

/** The decoded value of the last path parameter; '' without one. */
function lastOf(path: string, req: Request): string {
  const at = path.indexOf('{');
  return at < 0 ? '' : decoded(req.path.slice(at));
}

/** Answers OPTIONS, including CORS preflight requests. */
function answerOptions(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  allow: string,
): void {
  send(ctx, req, res, null, {
    status: 204,
    type: '',
    cache: CACHE_NEVER,
    body: '',
    headers: {
      Allow: allow,
      'Access-Control-Allow-Methods': allow,
      'Access-Control-Allow-Headers': 'Content-Type, If-None-Match',
      'Access-Control-Max-Age': '86400',
    },
  });
}
