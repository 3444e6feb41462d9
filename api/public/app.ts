import express, { type ErrorRequestHandler, type Express, type Request } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CACHE_NEVER, send, sendFailure, sendProblem } from './http/answer.js';
import type { PublicContext } from './context.js';
import { Problem } from './http/problem.js';
import { pathPattern, type Operation } from './operation.js';
import { OPERATIONS } from './operations.js';
import { unreadable } from './snapshot/serving.js';
import { decoded, handleLookup } from './lookup/routes.js';

/** The whole public API. Works without the listener's shortcut to the lookups, only slower. */
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
      `There is no ${req.path} in the public API: /docs has all that is.`,
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

/** One route a path, so that every method that is not served there is told which are. */
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
    const detail = `${req.path} answers ${allow}.`;
    const problem = new Problem('method_not_allowed', detail, { headers: { Allow: allow } });
    sendProblem(ctx, req, res, problem);
  });
}

/** What stands in place of a path's last parameter, when it is at the end. */
function lastOf(path: string, req: Request): string {
  const at = path.indexOf('{');
  return at < 0 ? '' : decoded(req.path.slice(at));
}

/** What the path answers, also for a browser that asks before a request of another origin. */
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
