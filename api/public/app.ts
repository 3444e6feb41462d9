import express, { type ErrorRequestHandler, type Express, type Request } from 'express';
import type { Exchange, PublicContext } from './context.js';
import { CACHE_NEVER, send, sendFailure, sendProblem } from './http/answer.js';
import { Problem } from './http/problem.js';
import { decoded } from './lookup/routes.js';
import { pathPattern, type Operation } from './operation.js';
import { OPERATIONS } from './operations.js';

/** Everything but the lookups, which the server answers before it calls this app. */
export function createApp(ctx: PublicContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  for (const served of byPath(OPERATIONS)) mount(ctx, app, served);
  app.use((req) => {
    throw new Problem(
      'route_not_found',
      `The public API has no route ${req.path}. See /docs for all routes.`,
    );
  });
  const onError: ErrorRequestHandler = (error: unknown, req, res, next) => {
    const route = (res.locals['route'] as string | undefined) ?? null;
    if (res.headersSent) next(error);
    else sendFailure({ ctx, req, res, route }, error);
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
  const { path } = shared;
  const route = app.route(pathPattern(shared));
  route.all((_req, res, next) => {
    res.locals['route'] = path;
    next();
  });
  for (const { spec, handler } of served) {
    route[spec.method]((req, res) => handler({ ctx, req, res, route: path }, lastOf(path, req)));
  }
  const methods = served.map(({ spec }) => spec.method.toUpperCase());
  const allow = methods
    .flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
    .concat('OPTIONS')
    .join(', ');
  route.options((req, res) => answerOptions({ ctx, req, res, route: path }, allow));
  route.all((req, res) => {
    const detail = `${req.path} supports ${allow}.`;
    const problem = new Problem('method_not_allowed', detail, { headers: { Allow: allow } });
    sendProblem({ ctx, req, res, route: path }, problem);
  });
}

/** The decoded value of the last path parameter; '' without one. */
function lastOf(path: string, req: Request): string {
  const at = path.indexOf('{');
  return at < 0 ? '' : decoded(req.path.slice(at));
}

/** Answers OPTIONS, including CORS preflight requests. */
function answerOptions(exchange: Exchange, allow: string): void {
  send(exchange, null, {
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
