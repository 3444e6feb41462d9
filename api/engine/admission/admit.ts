import type { Request, RequestHandler, Response } from 'express';
import type * as z from 'zod';
import { parentFault } from '#policy/parent';
import { canonicalBytes } from '#protocol/canonical-json';
import { admissionStatusSchema } from '#protocol/schemas/admission-status';
import type { AgentEnvelope } from '#protocol/schemas/agent';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Parent } from '#sql/admissions/parents';
import type { ResponseSpec } from '../../openapi/operation-spec.js';
import type { Caller } from '../http/authenticate.js';
import {
  readIdempotencyKey,
  requireAcceptable,
  requireAllowlisted,
  requireApiVersion,
  requireOpenLane,
  requireOwnTenantInBody,
  requireScope,
  requireTenantHeader,
} from '../http/gates.js';
import { parseBody, readBody } from '../http/parse-body.js';
import { Problem, type ProblemCode } from '../http/problem.js';
import { addLogFields, requestIdOf } from '../http/request-context.js';
import type { EngineDeps, OperationSpec } from '../operation.js';
import type { AdmissionBody, AdmissionLane } from './lanes.js';

export interface AdmissionOperation<Body extends AdmissionBody> {
  spec: OperationSpec;
  lane: AdmissionLane<Body>;
  /** 422 if the body references a proof that it cannot have as parent. */
  validateReferences?: (caller: Caller, body: Body) => Promise<void>;
}

interface Accepted {
  caller: Caller;
  proofId: string;
  isRepeat: boolean;
}

/** The order of the checks is documented in the OpenAPI guide. */
export function admit<Body extends AdmissionBody>(
  { ctx, authenticate, backpressure, submit, answer }: EngineDeps,
  {
    spec,
    lane: { lane, schema, version, fixtureRef },
    validateReferences,
  }: AdmissionOperation<Body>,
): RequestHandler {
  const accept = async (req: Request, res: Response): Promise<Accepted> => {
    const caller = await authenticate(req, res);
    requireOpenLane(ctx, caller);
    requireTenantHeader(req, caller);
    requireScope(caller, spec.scopes);
    requireAllowlisted(caller);
    await backpressure.requireCapacity();
    const request = await readBody(req, ctx.bodyLimit);
    requireAcceptable(req, spec.produces);
    requireApiVersion(req);
    const idempotencyKey = readIdempotencyKey(req);
    const { value, document } = parseBody(schema, request, version);
    if (document.idempotency_key !== undefined) {
      res.setHeader('X-Svc-Idempotency-Key', document.idempotency_key);
    }
    requireOwnTenantInBody(document.tenant_id, caller);
    await validateReferences?.(caller, document);

    const intake = await submit({
      tenantNo: caller.tenantNo,
      keyNo: caller.keyNo,
      lane,
      request,
      requestHash: nativeSha256(canonicalBytes(value)),
      fixtureRef: fixtureRef?.(document) ?? null,
      idempotencyKey,
      requestId: requestIdOf(res),
    });
    if (intake.outcome === 'idempotency_conflict') throw idempotencyConflict();
    return { caller, proofId: intake.proofId, isRepeat: intake.outcome === 'repeat' };
  };

  return async (req: Request, res: Response): Promise<void> => {
    const { caller, proofId, isRepeat } = await accept(req, res).catch((error: unknown) => {
      ctx.metrics?.admissions(lane, 'refused', 1);
      throw error;
    });
    ctx.metrics?.admissions(lane, isRepeat ? 'replayed' : 'accepted', 1);
    addLogFields(res, { proofId });
    // The access log line was written at disconnect, without the proof id.
    if (res.closed) ctx.log.info({ request_id: requestIdOf(res), proof_id: proofId }, 'accepted');
    if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');

    const settlement = await ctx.waiting.settlement(
      { tenantNo: caller.tenantNo, id: proofId },
      { timeoutMs: ctx.waitMs, checkImmediately: isRepeat, response: res },
    );
    if (settlement === null) answer.pending(res, proofId);
    else await answer.settled(res, proofId, settlement);
  };
}

export function idempotencyConflict(): Problem {
  return new Problem(
    'idempotency_conflict',
    'This X-Svc-Idempotency-Key was sent with another body before. Send a new key with a new body.',
  );
}

export const ADMISSION_HEADERS: Record<string, string> = {
  'X-Svc-Idempotency-Key': 'Optional. The engine rejects the same key with another body.',
};

export const ADMISSION_ANSWER_HEADERS: Record<string, string> = {
  'Idempotent-Replayed': '`true` if this body was accepted before.',
  'X-Svc-Idempotency-Key': 'The `idempotency_key` of the body, echoed.',
};

export function admissionResponses(receipt: z.ZodType): Record<number, ResponseSpec> {
  return {
    200: {
      description: 'Admitted: signed and in the log.',
      content: { 'application/json': receipt },
    },
    202: {
      description: 'Accepted and durable, not decided yet: follow `Location`.',
      content: { 'application/json': admissionStatusSchema },
      headers: { Location: 'Path of the admission.', 'Retry-After': 'Seconds.' },
    },
  };
}

export const ADMISSION_PROBLEMS: readonly ProblemCode[] = [
  'lane_locked',
  'tenant_not_allowlisted',
  'queue_too_deep',
  'invalid_idempotency_key',
  'tenant_body_mismatch',
  'idempotency_conflict',
  'api_key_revoked',
  'policy_denied',
  'admission_failed',
  'policy_missing',
];

/** 422 unless an envelope of this kind can have this parent. */
export function parentProblem(kind: AgentEnvelope['kind'], parent: Parent | null): Problem | null {
  const fault = parentFault(kind, parent);
  if (fault === null) return null;
  return new Problem(fault, PARENT_DETAILS[fault], {
    errors: [{ pointer: '/parent_proof_id', detail: POINTER_DETAILS[fault] }],
  });
}

const PARENT_DETAILS = {
  parent_not_found:
    'This tenant has no proof with the id in parent_proof_id. If its admission is pending, wait until it is decided.',
  parent_not_admitted:
    'The parent of an outcome must be an admitted action, not a denial or another outcome. Send the proof id of the admission.',
} as const;

const POINTER_DETAILS = {
  parent_not_found: 'must be the id of a proof of this tenant',
  parent_not_admitted: 'must be the id of an admitted action',
} as const;
