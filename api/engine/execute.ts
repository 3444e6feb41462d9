import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { admissionStatusSchema } from '#protocol/schemas/admission-status';
import { executeReceiptSchema, executeRequestSchema } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeSha256 } from '#runtime/crypto';
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
import type { EngineDeps, Operation, OperationSpec } from './operation.js';
import { parseBody } from './parse-body.js';
import { Problem } from './problem.js';
import { readBody } from './read-body.js';

const EXECUTE_LANE = 1;

const spec: OperationSpec = {
  id: 'executeIntent',
  method: 'post',
  path: '/v1/intents/execute',
  tag: 'Admission',
  summary: 'Admit an execution',
  description:
    'Accepts the execution, has it decided, signed and appended to the log, and answers with the receipt. The same body again is answered with the first receipt, byte for byte, and `Idempotent-Replayed: true`.',
  scopes: ['admit'],
  headers: {
    'X-Svc-Idempotency-Key':
      'Optional. Enforced when sent: the same key with another body is refused.',
  },
  body: {
    schema: executeRequestSchema,
    examples: {
      minimal: {
        schema_version: SCHEMA.executeRequest,
        intent_id: 'intent-1',
        tenant_id: 'demo',
        action: 'BOOK_RESERVATION',
      },
    },
  },
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Admitted: signed and in the log.',
      content: { 'application/json': executeReceiptSchema },
      headers: {
        'Idempotent-Replayed': '`true` when this body was admitted before.',
        'X-Svc-Idempotency-Key': 'The `idempotency_key` of the body, echoed.',
      },
    },
    202: {
      description: 'Accepted and durable, not yet decided: follow `Location`.',
      content: { 'application/json': admissionStatusSchema },
      headers: { Location: 'Where the answer will be.', 'Retry-After': 'Seconds.' },
    },
  },
  problems: [
    'lane_locked',
    'tenant_not_allowlisted',
    'invalid_idempotency_key',
    'tenant_body_mismatch',
    'idempotency_conflict',
    'policy_denied',
    'admission_failed',
    'policy_missing',
  ],
};

export const executeOperation: Operation = { spec, handler: execute };

/** The order of the steps is the order in which a bad request is refused. */
function execute({ ctx, authenticate, submit, answer }: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const caller = await authenticate(req, res);
    requireOpenLane(ctx, caller);
    requireTenantHeader(req, caller);
    requireScope(caller, spec.scopes);
    requireAllowlisted(caller);
    const request = await readBody(req, ctx.bodyLimit);
    requireAcceptable(req, spec.produces);
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
