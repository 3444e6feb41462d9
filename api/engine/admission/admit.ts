import type { Request, RequestHandler, Response } from 'express';
import type * as z from 'zod';
import { parentFault } from '#policy/parent';
import { findParents, type Parent, type Lane } from '#sql/admissions/intake';
import { canonicalize, type JsonValue } from '#protocol/json';
import {
  agentEnvelopeSchema,
  type AgentEnvelope,
  executeRequestSchema,
  type ExecuteRequest,
} from '#protocol/schemas/admission';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeTextHash } from '#runtime/crypto/node';
import type { EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { authorizeAdmission, readAdmissionHeaders } from '../http/gates.js';
import { parseJson, readBody, parseDocument } from '../http/parse-body.js';
import { at, Problem } from '../http/problem.js';
import { addLogFields, requestIdOf } from '../http/request-context.js';
import { clientGone } from '../http/respond.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { sendOutcome, sendPending } from './outcome.js';

interface Accepted {
  tenantNo: number;
  proofId: string;
  isRepeat: boolean;
}

export function admissionOperation<Body extends AdmissionBody>(
  spec: OperationSpec,
  type: RequestType<Body>,
): Operation {
  const handler = (deps: EngineDeps): RequestHandler => {
    const { ctx } = deps;
    return async (req, res) => {
      const { isRepeat, proofId, tenantNo } = await accept(deps, spec, type, req, res).catch(
        (error: unknown) => {
          ctx.metrics?.admissions(type.lane, 'refused', 1);
          throw error;
        },
      );
      ctx.metrics?.admissions(type.lane, isRepeat ? 'replayed' : 'accepted', 1);
      addLogFields(res, { proof_id: proofId });
      // The access log line was written at disconnect, without the proof id.
      if (res.closed) ctx.log.info({ request_id: requestIdOf(res), proof_id: proofId }, 'accepted');
      if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');
      const outcome = await ctx.waiting.wait(
        { tenantNo, id: proofId },
        { timeoutMs: ctx.waitMs, checkImmediately: isRepeat, signal: clientGone(res) },
      );
      if (outcome === null) sendPending(res, proofId);
      else await sendOutcome(ctx, res, proofId, outcome);
    };
  };
  return { spec, handler };
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
  if (intake.outcome === 'idempotency_conflict') throw new Problem('idempotency_conflict');
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

export interface AdmissionBody {
  tenant_id: string;
  idempotency_key?: string;
}

export interface RequestType<Body extends AdmissionBody = AdmissionBody> {
  lane: Lane;
  schema: z.ZodType<Body>;
  version: string;
  referencesOf: (body: Body) => Pick<ParsedAdmission, 'fixtureRef' | 'parent'>;
}

export const EXECUTE: RequestType<ExecuteRequest> = {
  lane: 1,
  schema: executeRequestSchema,
  version: SCHEMA.executeRequest,
  referencesOf: (body) => ({ fixtureRef: body.proof_chain_fixture_ref ?? null, parent: null }),
};

export const AGENT: RequestType<AgentEnvelope> = {
  lane: 2,
  schema: agentEnvelopeSchema,
  version: SCHEMA.agentEnvelope,
  referencesOf: ({ kind, parent_proof_id: proofId }) => ({
    fixtureRef: null,
    parent: proofId === undefined ? null : { kind, proofId },
  }),
};

export interface NamedParent {
  kind: AgentEnvelope['kind'];
  proofId: string;
}

/** A body that its schema accepts. Its tenant and its parent are not checked yet. */
export interface ParsedAdmission {
  lane: Lane;
  body: AdmissionBody;
  requestHash: string;
  fixtureRef: string | null;
  /** The parent to check in the registry before acceptance. */
  parent: NamedParent | null;
}

/** @throws Problem 400 */
export function parseAdmission<Body extends AdmissionBody>(
  { lane, referencesOf, schema, version }: RequestType<Body>,
  value: JsonValue,
): ParsedAdmission {
  const body = parseDocument(schema, value, version);
  const requestHash = nativeTextHash(canonicalize(value));
  return { lane, body, requestHash, ...referencesOf(body) };
}

export function requireOwnTenant({ tenant_id }: AdmissionBody, { tenantId }: Caller): void {
  if (tenant_id !== tenantId) {
    throw new Problem(
      'tenant_body_mismatch',
      at('/tenant_id', 'must be the tenant of the API key'),
    );
  }
}
