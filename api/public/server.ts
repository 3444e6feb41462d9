import express, {
  type Express,
  type Request,
  type Response,
  type ErrorRequestHandler,
} from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { type PinnedLogKey, pinKeys } from '#protocol/snapshot/trust';
import { nativeSha256 } from '#runtime/crypto/node';
import { requestIdFrom } from '#runtime/http/request-ids';
import { CACHE_NEVER, send, sendFailure, sendProblem } from './http/answer.js';
import { publicReadiness } from './http/health.js';
import { Problem } from './http/problem.js';
import { handleLookup, routeOfLookup, decoded } from './lookup/routes.js';
import { type PublicContext, type Exchange, pathPattern } from './operation.js';
import { OPERATIONS } from './operations.js';
import { readScript } from '../pages/assets.js';
import { Checkpoints } from './log/checkpoints.js';
import type { PageMemory, Snapshot } from './snapshot/snapshot.js';
import { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';

export interface PublicServerOptions
  extends
    Pick<PublicContext, 'clock' | 'log' | 'metrics' | 'stopping'>,
    Partial<Pick<PublicContext, 'publicUrl'>> {
  snapshotSource: SnapshotSource;
  /** The pinned log key, a C2SP vkey whose name is the log origin; several keys during a rotation. */
  logVkey: PinnedLogKey | readonly PinnedLogKey[];
  pageMemory?: PageMemory;
}

type RequestHandler = (req: IncomingMessage, res: ServerResponse) => void;

export type PublicServer = ReturnType<typeof createPublicServer>;

const POLL_MS = 250;
/** Interval of polls just after a new snapshot: shorter for a directory, whose polls cost little. */
const BUSY_POLL_MS = { directory: 100, http: POLL_MS, bucket: POLL_MS };
const START_MS = 1_000;

/** Creates the public API over a snapshot. The public API is read-only and has no private keys. */
export function createPublicServer(options: PublicServerOptions) {
  const { snapshotSource: source, logVkey, pageMemory, ...settings } = options;
  const { clock, log } = settings;
  const trust = pinKeys(nativeSha256, [logVkey].flat());
  // Throws at startup if a script is missing: the page would verify nothing without reporting it.
  for (const script of ['page/verify.js', 'page/prove.js'] as const) readScript(script);
  const checkpoints = new Checkpoints(source, trust, clock);
  // Reads the cosigned checkpoint with each snapshot. If only requests read the file, it could be newer than the served
  // snapshot each time, so that the server would serve a checkpoint that it read minutes ago.
  const onNewer = (snapshot: Snapshot) => checkpoints.newest(snapshot);
  const poller = new SnapshotPoller({ source, trust, pageMemory, clock, log, onNewer });
  const ctx: PublicContext = { publicUrl: null, ...settings, source, trust, poller, checkpoints };
  const app = createApp(ctx);
  return {
    poller,
    readiness: () => publicReadiness(ctx),
    /** Handles lookups before Express (fast path) and passes everything else to the Express app. */
    handler: observed(ctx, app),
    /** Resolves after the first poll or `START_MS`: a slow origin must not delay the listener. */
    start: async (): Promise<void> => {
      const timeout = new AbortController();
      await Promise.race([
        poller.start(POLL_MS, BUSY_POLL_MS[source.kind]),
        sleep(START_MS, undefined, { signal: timeout.signal }).catch(() => undefined),
      ]);
      timeout.abort();
    },
    close: (): void => {
      poller.stop();
      source.close();
    },
  };
}

/** Measures the duration of one in 64 lookups: two clock reads cost more than counting a request. */
const SAMPLE_INTERVAL = 64;
/** Lookups per line in the log: a line for each lookup would cost more than the lookup. */
const LOG_INTERVAL = 16 * SAMPLE_INTERVAL;

/**
 * Counts and times requests, and logs a sample of the lookups. Lookups count themselves when they
 * respond, which avoids a `close` listener on the hot path; Express responses are counted on `close`.
 */
function observed(ctx: PublicContext, app: Express): RequestHandler {
  const { metrics, log } = ctx;
  let sequence = 0;
  return (req, res) => {
    const { method = '' } = req;
    const requestId = requestIdFrom(req.headers['x-request-id']);
    sequence = (sequence + 1) % LOG_INTERVAL;
    const isLogged = sequence === 0;
    const began = sequence % SAMPLE_INTERVAL === 0 ? performance.now() : null;
    const isLookup = handleLookup(ctx, req, res, requestId);
    if (isLookup && began === null) return;
    const since = began ?? performance.now();
    res.once('close', () => {
      const ms = performance.now() - since;
      const status = res.headersSent ? res.statusCode : null;
      const route = isLookup ? routeOfLookup(req.url ?? '') : (localsOf(res).route ?? null);
      if (!isLookup) metrics?.countRequest(route, method, status);
      metrics?.observeDuration(route, ms);
      if (!isLookup || !isLogged) return;
      const outcome = status === null ? { disconnected: true } : { status };
      // Never the URL: it has the identifier, which may be a share token.
      const fields = { request_id: requestId, method, route, ...outcome };
      log.info({ ...fields, ms: Math.round(ms * 10) / 10 }, 'request');
    });
    if (isLookup) return;
    Object.assign(res, { locals: { requestId } satisfies Locals });
    app(req, res);
  };
}

/** Set by the middleware: the request id and the documented path. */
interface Locals {
  requestId: string;
  route?: string;
}

const localsOf = (res: ServerResponse): Locals => (res as Response).locals as unknown as Locals;

function exchangeOf(ctx: PublicContext, req: Request, res: Response): Exchange {
  const { requestId, route = null } = localsOf(res);
  return { ctx, req, res, requestId, route };
}

/** All routes but the lookups, which the server answers before it calls this app. */
function createApp(ctx: PublicContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  for (const path of new Set(OPERATIONS.map(({ spec }) => spec.path))) mount(ctx, app, path);
  app.use((req) => {
    throw new Problem(
      'route_not_found',
      `The public API has no route ${req.path}. See /docs for all routes.`,
    );
  });
  const onError: ErrorRequestHandler = (error: unknown, req, res, next) => {
    if (res.headersSent) next(error);
    else sendFailure(exchangeOf(ctx, req, res), error);
  };
  app.use(onError);
  return app;
}

/** Mounts one Express route for each path, so that 405 and OPTIONS can list its methods. */
function mount(ctx: PublicContext, app: Express, path: string): void {
  const served = OPERATIONS.filter(({ spec }) => spec.path === path);
  const route = app.route(pathPattern(served[0]!.spec));
  route.all((_req, res, next) => {
    localsOf(res).route = path;
    next();
  });
  for (const { spec, handler } of served) {
    route[spec.method]((req, res) => handler(exchangeOf(ctx, req, res), lastOf(path, req.path)));
  }
  const allow = served
    .flatMap(({ spec }) => (spec.method === 'get' ? ['GET', 'HEAD'] : [spec.method.toUpperCase()]))
    .concat('OPTIONS')
    .join(', ');
  route.options((req, res) => answerOptions(exchangeOf(ctx, req, res), allow));
  route.all((req, res) => {
    const detail = `${req.path} supports ${allow}.`;
    const problem = new Problem('method_not_allowed', detail, { headers: { Allow: allow } });
    sendProblem(exchangeOf(ctx, req, res), problem);
  });
}

/** The decoded value of the last path parameter; '' without a path parameter. */
function lastOf(path: string, requested: string): string {
  const at = path.indexOf('{');
  return at < 0 ? '' : decoded(requested.slice(at));
}

function answerOptions(exchange: Exchange, allow: string): void {
  send(exchange, null, {
    status: 204,
    type: '',
    cache: CACHE_NEVER,
    body: '',
    headers: {
      Allow: allow,
      'Access-Control-Allow-Methods': allow,
      'Access-Control-Allow-Headers': 'Content-Type, If-None-Match, X-Request-Id',
      'Access-Control-Max-Age': '86400',
    },
  });
}
