import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import { isUnavailable, PolicyMissingError } from '#sql/errors';
import { admission } from './admission.js';
import { createAnswer } from './answer.js';
import { createAuthenticate } from './authenticate.js';
import type { EngineContext } from './context.js';
import { exchange, requestIdOf } from './exchange.js';
import { execute } from './execute.js';
import { healthz, readyz } from './health.js';
import { inclusion } from './inclusion.js';
import { Problem, sendProblem } from './problem.js';
import { readProof } from './read-proof.js';
import { createSubmit } from './submit.js';

/** The engine API (spec 4.2). It owns nothing: what it uses is opened and closed by the caller. */
export function createEngine(ctx: EngineContext): Express {
  const authenticate = createAuthenticate(ctx);
  const submit = createSubmit(ctx);
  const answer = createAnswer(ctx);

  const router = express.Router({ caseSensitive: true, strict: true });
  router
    .route('/v1/intents/execute')
    .post(execute(ctx, authenticate, submit, answer))
    .all(only('POST'));
  router
    .route('/v1/admissions/:proofId')
    .get(admission(ctx, authenticate, answer))
    .all(only('GET', 'HEAD'));
  router.route('/v1/proofs/:proofId').get(readProof(ctx, authenticate)).all(only('GET', 'HEAD'));
  router
    .route('/v1/proofs/:proofId/inclusion')
    .get(inclusion(ctx, authenticate))
    .all(only('GET', 'HEAD'));
  router.route('/healthz').get(healthz).all(only('GET', 'HEAD'));
  router.route('/readyz').get(readyz(ctx)).all(only('GET', 'HEAD'));

  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', 'simple');
  app.use(exchange(ctx));
  app.use(router);
  app.use(nothingHere);
  app.use(toProblem(ctx));
  return app;
}

function only(...methods: string[]): RequestHandler {
  const allow = [...methods, 'OPTIONS'].join(', ');
  return (req, res) => {
    if (req.method !== 'OPTIONS') {
      throw new Problem('method_not_allowed', `Use ${methods.join(' or ')}.`, {
        headers: { Allow: allow },
      });
    }
    res.setHeader('Allow', allow);
    res.statusCode = 204;
    res.end();
  };
}

const nothingHere: RequestHandler = () => {
  throw new Problem('route_not_found', 'The path is not one of the engine API.');
};

/** Where every error ends: its own problem, or one that says nothing of the inside. */
function toProblem({ log }: EngineContext): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const problem = problemOf(error);
    if (problem.status >= 500) {
      log.error({ err: error as unknown, request_id: requestIdOf(res), code: problem.code });
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
  if (isUnavailable(error)) {
    return new Problem(
      'database_unavailable',
      'Try again. That is safe: the same body is admitted once.',
      {
        headers: { 'Retry-After': '1' },
        cause: error,
      },
    );
  }
  if (error instanceof PolicyMissingError) {
    return new Problem('policy_missing', 'Nothing was admitted. An operator must activate one.', {
      headers: { 'Retry-After': '30' },
      cause: error,
    });
  }
  if (error instanceof URIError) {
    return new Problem('malformed_path', 'The path is not valid percent-encoding.');
  }
  return new Problem('internal_error', 'The engine failed. Nothing is known to be admitted.', {
    cause: error,
  });
}
