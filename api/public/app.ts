import express, {
  type ErrorRequestHandler,
  type Express,
  type Request,
  type Response,
} from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CACHE_NEVER, send, sendFailure, sendProblem } from './http/answer.js';
import type { PublicContext } from './context.js';
import { getHealth, getReadiness } from './http/health.js';
import { getKeys } from './log/keys.js';
import { getCheckpoint, getEntry, getInclusionProof, getTile } from './log/files.js';
import { getIcon, getPage, getScript, getStyle } from './page.js';
import { postLookup } from './lookup/post.js';
import { Problem } from './http/problem.js';
import { unreadable } from './snapshot/serving.js';
import { handleLookup, LOOKUP_PATHS, VERIFY } from './lookup/routes.js';

/** One operation; `rest` is what its path has in place of the wildcard. */
type Operation = (
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  rest: string,
) => void | Promise<void>;

/** Operations by method; HEAD goes with GET. */
type Methods = Partial<Record<'GET' | 'POST', Operation>>;

/** Its paths are matched before any route; what gets here has more than one segment as its id. */
const getLookup: Operation = (_ctx, req) => {
  throw noRoute(req.url ?? '');
};

function noRoute(path: string): Problem {
  return new Problem('route_not_found', `There is no ${path} in the public API.`);
}

/** The whole public API. Works without the listener's shortcut to the lookups, only slower. */
export function createApp(ctx: PublicContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.enable('strict routing');

  app.use((req, res, next) => {
    if (!handleLookup(ctx, req, res)) next();
  });
  mount(ctx, app, '/', { GET: getPage });
  mount(ctx, app, '/page/style.css', { GET: getStyle });
  mount(ctx, app, '/page/copy.js', { GET: getScript });
  mount(ctx, app, '/page/icon.svg', { GET: getIcon });
  mount(ctx, app, VERIFY, { GET: getLookup, POST: postLookup });
  for (const path of LOOKUP_PATHS) mount(ctx, app, `${path}/*rest`, { GET: getLookup });
  mount(ctx, app, '/api/public/keys', { GET: getKeys });
  mount(ctx, app, '/log/checkpoint', { GET: getCheckpoint });
  mount(ctx, app, '/log/tile/*rest', { GET: getTile });
  mount(ctx, app, '/log/entry/:rest', { GET: getEntry });
  mount(ctx, app, '/log/proof/:rest', { GET: getInclusionProof });
  mount(ctx, app, '/healthz', { GET: getHealth });
  mount(ctx, app, '/readyz', { GET: getReadiness });

  app.use((req) => {
    throw noRoute(req.path);
  });
  const onError: ErrorRequestHandler = (error: unknown, req, res, next) => {
    if (res.headersSent) next(error);
    // A path that is not valid percent-encoding names nothing.
    else if (error instanceof URIError) {
      sendProblem(ctx, req, res, new Problem('route_not_found', 'The path cannot be decoded.'));
    } else sendFailure(ctx, req, res, error, unreadable);
  };
  app.use(onError);
  return app;
}

function mount(ctx: PublicContext, app: Express, path: string, methods: Methods): void {
  const route = app.route(path);
  const run =
    (operation: Operation) =>
    async (req: Request, res: Response): Promise<void> => {
      const { rest } = req.params as { rest?: string | string[] };
      await operation(ctx, req, res, Array.isArray(rest) ? rest.join('/') : (rest ?? ''));
    };
  if (methods.GET) route.get(run(methods.GET));
  if (methods.POST) route.post(run(methods.POST));
  const allow = [...(methods.GET ? ['GET', 'HEAD'] : []), ...(methods.POST ? ['POST'] : [])]
    .concat('OPTIONS')
    .join(', ');
  route.options((req, res) => {
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
  });
  route.all((req, res) => {
    const detail = `${req.path} answers ${allow}.`;
    sendProblem(
      ctx,
      req,
      res,
      new Problem('method_not_allowed', detail, { headers: { Allow: allow } }),
    );
  });
}
