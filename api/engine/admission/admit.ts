import type { Request, RequestHandler, Response } from 'express';
import { parentFault } from '#policy/parent';
import { findParents, type Parent } from '#sql/admissions/parents';
import type { EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { authorizeAdmission, readAdmissionHeaders } from '../http/gates.js';
import { parseJson, readBody } from '../http/parse-body.js';
import { at, Problem } from '../http/problem.js';
import { addLogFields, requestIdOf } from '../http/request-context.js';
import { clientGone } from '../http/respond.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { sendOutcome, sendPending } from './outcome.js';
import {
  parseAdmission,
  requireOwnTenant,
  type AdmissionBody,
  type NamedParent,
  type RequestType,
} from './request-types.js';

interface Accepted {
  tenantNo: number;
  proofId: string;
  isRepeat: boolean;
}

/** Accepts one admission and waits for its outcome. */
export function admissionOperation<Body extends AdmissionBody>(
  spec: OperationSpec,
  type: RequestType<Body>,
): Operation {
  return { spec, handler: (deps) => admit(deps, spec, type) };
}

function admit<Body extends AdmissionBody>(
  deps: EngineDeps,
  spec: OperationSpec,
  type: RequestType<Body>,
): RequestHandler {
  const { ctx } = deps;
  return async (req, res) => {
    const { isRepeat, proofId, tenantNo } = await accept(deps, spec, type, req, res).catch(
      (error: unknown) => {
        ctx.metrics?.admissions(type.lane, 'refused', 1);
        throw error;
      },
    );
    ctx.metrics?.admissions(type.lane, isRepeat ? 'replayed' : 'accepted', 1);
    addLogFields(res, { proofId });
    // The access log line was written at disconnect, without the proof id.
    if (res.closed) ctx.log.info({ request_id: requestIdOf(res), proof_id: proofId }, 'accepted');
    if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');

    const outcome = await ctx.waiting.settlement(
      { tenantNo, id: proofId },
      { timeoutMs: ctx.waitMs, checkImmediately: isRepeat, signal: clientGone(res) },
    );
    if (outcome === null) sendPending(res, proofId);
    else await sendOutcome(ctx, res, proofId, outcome);
  };
}

/** The order of the checks is documented in the OpenAPI guide. */
async function accept<Body extends AdmissionBody>(
  deps: EngineDeps,
  spec: OperationSpec,
  type: RequestType<Body>,
  req: Request,
  res: Response,
): Promise<Accepted> {
  const { ctx } = deps;
  const caller = await authorizeAdmission(deps, spec, req, res);
  const request = await readBody(req, ctx.bodyLimit);
  const idempotencyKey = readAdmissionHeaders(req, spec);
  const { body, fixtureRef, lane, parent, requestHash } = parseAdmission(type, parseJson(request));
  if (body.idempotency_key !== undefined) {
    res.setHeader('X-Svc-Idempotency-Key', body.idempotency_key);
  }
  requireOwnTenant(body, caller);
  if (parent !== null) await requireParent(ctx, caller, parent);

  const { keyNo, tenantNo } = caller;
  const intake = await deps.submit({
    tenantNo,
    keyNo,
    lane,
    request,
    requestHash: Buffer.from(requestHash, 'hex'),
    fixtureRef,
    idempotencyKey,
    requestId: requestIdOf(res),
  });
  if (intake.outcome === 'idempotency_conflict') throw idempotencyConflict();
  return { tenantNo, proofId: intake.proofId, isRepeat: intake.outcome === 'repeat' };
}

async function requireParent(
  { tenantSql }: EngineContext,
  { tenantNo }: Caller,
  { kind, proofId }: NamedParent,
): Promise<void> {
  const [parent = null] = await tenantSql.run(tenantNo, (sql) =>
    findParents(sql, tenantNo, [proofId]),
  );
  const problem = parentProblem(kind, parent);
  if (problem !== null) throw problem;
}

/** 422 unless an envelope of this kind can have this parent. */
export function parentProblem(kind: NamedParent['kind'], parent: Parent | null): Problem | null {
  const code = parentFault(kind, parent);
  if (code === null) return null;
  const [detail, fault] = PARENT_FAULTS[code];
  return new Problem(code, detail, at('/parent_proof_id', fault));
}

const PARENT_FAULTS = {
  parent_not_found: [
    'This tenant has no proof with the id in parent_proof_id. If its admission is pending, wait until it is decided.',
    'must be the id of a proof of this tenant',
  ],
  parent_not_admitted: [
    'The parent of an outcome must be an admitted action, not a denial or another outcome. Send the proof id of the admission.',
    'must be the id of an admitted action',
  ],
} as const;

export function idempotencyConflict(): Problem {
  return new Problem(
    'idempotency_conflict',
    'This X-Svc-Idempotency-Key was sent with another body before. Send a new key with a new body.',
  );
}
