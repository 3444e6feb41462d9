import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { nativeSha256 } from '#runtime/crypto';
import type { Answer } from './answer.js';
import type { Authenticate } from './authenticate.js';
import type { EngineContext } from './context.js';
import { noteOn } from './exchange.js';
import {
  readIdempotencyKey,
  requireAcceptable,
  requireAllowlisted,
  requireApiVersion,
  requireOpenLane,
  requireOwnTenantInBody,
  requireScope,
  requireTenantHeader,
} from './gates.js';
import { parseBody } from './parse-body.js';
import { Problem } from './problem.js';
import { readBody } from './read-body.js';
import type { Submit } from './submit.js';

const EXECUTE_LANE = 1;

/** POST /v1/intents/execute. The order of the steps is the order in which a bad request is refused. */
export function execute(
  ctx: EngineContext,
  authenticate: Authenticate,
  submit: Submit,
  answer: Answer,
) {
  return async (req: Request, res: Response): Promise<void> => {
    const caller = await authenticate(req, res);
    requireOpenLane(ctx, caller);
    requireTenantHeader(req, caller);
    requireScope(caller, 'admit');
    requireAllowlisted(caller);
    const request = await readBody(req, ctx.bodyLimit);
    requireAcceptable(req, 'application/json');
    requireApiVersion(req);
    const idempotencyKey = readIdempotencyKey(req);
    const { value, document } = parseBody(executeRequestSchema, request);
    if (document.idempotency_key !== undefined) {
      res.setHeader('X-Svc-Idempotency-Key', document.idempotency_key);
    }
    requireOwnTenantInBody(document.tenant_id, caller);

    const intake = await submit({
      tenantNo: caller.tenantNo,
      lane: EXECUTE_LANE,
      request,
      requestHash: nativeSha256(canonicalBytes(value)),
      fixtureRef: document.proof_chain_fixture_ref ?? null,
      idempotencyKey,
    });
    if (intake.outcome === 'idempotency_conflict') throw idempotencyConflict();
    const { proofId } = intake;
    noteOn(res, { proofId });
    const isRepeat = intake.outcome === 'repeat';
    if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');

    // A client that goes away ends the waiting, not the admission.
    const gone = new AbortController();
    res.once('close', () => {
      if (!res.writableFinished) gone.abort();
    });
    const settlement = await ctx.waiting.settlement(proofId, {
      timeoutMs: ctx.waitMs,
      askNow: isRepeat,
      signal: gone.signal,
    });
    if (settlement === null) answer.pending(res, proofId);
    else await answer.settled(res, proofId, settlement);
  };
}

function idempotencyConflict(): Problem {
  return new Problem(
    'idempotency_conflict',
    'This X-Svc-Idempotency-Key was sent with another body before. Use a new key for a new body.',
  );
}
