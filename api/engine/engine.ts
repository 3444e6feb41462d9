import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import { BusyError, Limiter } from '#runtime/concurrency';
import { logRarely } from '#runtime/process/log';
import {
  isLockTimeout,
  isUnavailable,
  PolicyChangedError,
  PolicyMissingError,
} from '#sql/db/errors';
import { DamagedEntryError } from '#sql/proofs/read';
import { readScript } from '../pages/assets.js';
import { createAuthenticate } from './http/authenticate.js';
import { type EngineContext, type QueryTenant, TENANT_CONNECTIONS } from './context.js';
import { requestContext, addLogFields, requestIdOf } from './http/respond.js';
import type { EngineDeps } from './operation.js';
import { OPERATIONS } from './operations.js';
import { Problem, sendProblem, type ProblemCode } from './http/problem.js';
import { createReadDeclaredFacts, createRegistryCheck } from './admission/registry-checks.js';
import { createCapacityCheck, createSubmit } from './admission/submit.js';

/** The engine API. The caller opens and closes every resource. */
export function createEngine(ctx: EngineContext): Express {
  // Throws at startup, not at the first request, if the built script is missing.
  readScript('approval-page/approve.js');
  const readDeclaredFacts = createReadDeclaredFacts(ctx);
  const ofTenants = new Limiter(TENANT_CONNECTIONS);
  const queryTenant: QueryTenant = (tenantNo, work, ...args) =>
    ofTenants.run(tenantNo, () => work(ctx.tenantSql, tenantNo, ...args));
  const deps: EngineDeps = {
    ctx,
    queryTenant,
    authenticate: createAuthenticate(ctx),
    requireCapacity: createCapacityCheck(ctx),
    readDeclaredFacts,
    checkRegistry: createRegistryCheck(queryTenant, readDeclaredFacts),
    submit: createSubmit(ctx),
  };
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', 'simple');
  app.use(requestContext(ctx));
  app.use(routerOf(deps));
  app.use(() => {
    throw new Problem('route_not_found');
  });
  app.use(toProblem(ctx));
  return app;
}

/** One route per path, so that an unsupported method gets 405 with `Allow`. */
function routerOf(deps: EngineDeps): express.Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  for (const path of new Set(OPERATIONS.map(({ spec }) => spec.path))) {
    const served = OPERATIONS.filter(({ spec }) => spec.path === path);
    const route = router.route(path.replaceAll(/\{(\w+)\}/g, ':$1'));
    route.all((_req, res, next) => {
      addLogFields(res, { route: path });
      next();
    });
    for (const { spec, handler } of served) route[spec.method](handler(deps));
    const methods = served.map(({ spec }) => spec.method.toUpperCase());
    route.all(only(methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : method))));
  }
  return router;
}

function only(methods: string[]): RequestHandler {
  const allow = [...methods, 'OPTIONS'].join(', ');
  return (req, res) => {
    if (req.method !== 'OPTIONS') {
      throw new Problem('method_not_allowed', `Use ${methods.join(' or ')}.`, {
        headers: { Allow: allow },
      });
    }
    res.setHeader('Allow', allow);
    res.status(204).end();
  };
}

/** Problems that only concurrent work causes: in the access log and the metrics, but not logged as errors. */
const LOAD_LIMITS: ReadonlySet<ProblemCode> = new Set([
  'tenant_busy',
  'too_many_batches',
  'renderer_busy',
]);

/** Maps every error to a problem. Unknown errors reveal nothing of the internals. */
function toProblem({ log }: EngineContext): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const problem = problemOf(error);
    if (problem.options.isTenantLimit === true) addLogFields(res, { limit: 'tenant' });
    else if (problem.status >= 500 && !LOAD_LIMITS.has(problem.code)) {
      const fields = { err: error as unknown, request_id: requestIdOf(res), code: problem.code };
      // Logs 503s rarely: an outage makes every request fail alike. Each 500 may be a different defect.
      if (problem.status === 503) logRarely(log, 'error', fields, `engine: ${problem.code}`);
      else log.error(fields, 'engine: a request failed');
    }
    if (res.headersSent || res.destroyed) {
      res.destroy();
      return;
    }
    sendProblem(req, res, problem);
  };
}

function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof DamagedEntryError) {
    return new Problem(
      'integrity_failure',
      'The stored status history of this proof is damaged. Nothing was changed. Contact the operator.',
      { cause: error },
    );
  }
  const because = { cause: error };
  if (isUnavailable(error)) return new Problem('database_unavailable', because);
  if (error instanceof BusyError)
    return new Problem('tenant_busy', { ...because, isTenantLimit: error.isOwnerLimit });
  // Not marked as the tenant's own limit, so it counts for the alert SvcErrors: a lock held for so long shows slow
  // work, even if only this tenant waits.
  if (isLockTimeout(error)) return new Problem('tenant_busy', because);
  if (error instanceof PolicyMissingError) return new Problem('policy_missing', because);
  if (error instanceof PolicyChangedError) {
    return new Problem(
      'tenant_busy',
      'The operator activated policy sets while the engine accepted the request. Nothing was changed. Send it again.',
      because,
    );
  }
  return new Problem(error instanceof URIError ? 'malformed_path' : 'internal_error', because);
}
