import type { Request, RequestHandler, Response } from 'express';
import * as z from 'zod';
import { isRunTimely, runPlaceOf } from '#sql/admissions/references';
import { hashHex } from '#protocol/hash';
import { isProofId } from '#protocol/ids';
import { canonicalize, type JsonValue } from '#protocol/json';
import {
  agentEnvelopeSchema,
  type AgentEnvelope,
  executeRequestSchema,
  type ExecuteRequest,
  admissionStatusSchema,
  agentReceiptSchema,
  approvalRequiredSchema,
  executeReceiptSchema,
} from '#protocol/schemas/admission';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Lane } from '#sql/admissions/intake';
import { admissionState, type Outcome } from '#sql/admissions/outcomes';
import { PolicyChangedError } from '#sql/db/errors';
import type { OwnId } from '#sql/db/transaction';
import type { EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import {
  authorizeAdmission,
  readAdmissionHeaders,
  requireOwnTenant,
  tenantOperation,
  requireKeyAllows,
  parseJson,
  readBody,
  parseDocument,
} from '../http/request.js';
import { at, Problem, type ProblemCode } from '../http/problem.js';
import { addLogFields, requestIdOf, traceparentOf, clientGone } from '../http/respond.js';
import { type EngineDeps, type Operation, type OperationSpec, json, specOf } from '../operation.js';
import { REJECTION_CODES, sendOutcome, sendPending } from './outcome.js';
import type { RegistryCheckInput } from './registry-checks.js';

interface Translated {
  value: JsonValue;
  /** Converts a pointer into `value` to the pointer into the sent body. */
  pointerOf: (pointer: string) => string;
  /** The policy set that the translation depends on. */
  policyDigest?: Buffer;
}

/** How one API translates its requests to admissions, and responds. */
export interface AdmissionApi {
  /** Translates the sent body to a request; called again if the policy set changes before acceptance. */
  translate(deps: EngineDeps, caller: Caller, sent: JsonValue): Promise<Translated>;
  /** @param outcome null when the admission was not decided in time */
  respond(
    ctx: EngineContext,
    res: Response,
    admission: OwnId,
    outcome: Outcome | null,
  ): Promise<void>;
}

const ENGINE_API: AdmissionApi = {
  translate: (_deps, _caller, value) => Promise.resolve({ value, pointerOf: (at) => at }),
  async respond(ctx, res, { id, tenantNo }, outcome) {
    if (outcome === null) sendPending(res, id);
    else await sendOutcome(ctx, res, tenantNo, outcome);
  },
};

export function admissionOperation(
  spec: OperationSpec,
  type: RequestType,
  api = ENGINE_API,
): Operation {
  const handler = (deps: EngineDeps): RequestHandler => {
    const { ctx } = deps;
    return async (req, res) => {
      const accepting = acceptRequest(deps, spec, type, api, req, res);
      const { isRepeat, proofId, tenantNo } = await accepting.catch((error: unknown) => {
        ctx.metrics?.admissions(type.lane, 'refused', 1);
        throw error;
      });
      ctx.metrics?.admissions(type.lane, isRepeat ? 'replayed' : 'accepted', 1);
      addLogFields(res, { proof_id: proofId });
      // If the client has disconnected, its access log line is already written, without the proof id.
      if (res.closed) ctx.log.info({ request_id: requestIdOf(res), proof_id: proofId }, 'accepted');
      if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');
      const admission = { tenantNo, id: proofId };
      const outcome = await ctx.admissionOutcomes.wait(admission, {
        timeoutMs: ctx.waitMs,
        checkImmediately: isRepeat,
        signal: clientGone(res),
      });
      await api.respond(ctx, res, admission, outcome);
    };
  };
  return { spec, handler };
}

const MAX_TRANSLATIONS = 3;

/** The order of the checks is documented in the OpenAPI guide. */
async function acceptRequest(
  deps: EngineDeps,
  spec: OperationSpec,
  type: RequestType,
  api: AdmissionApi,
  req: Request,
  res: Response,
) {
  const caller = await authorizeAdmission(deps, spec, req, res);
  const bytes = await readBody(req);
  const idempotencyKey = readAdmissionHeaders(req, spec);
  const sent = parseJson(bytes);
  for (let attempt = 1; ; attempt += 1) {
    const translated = await api.translate(deps, caller, sent);
    try {
      return await submitTranslated(deps, type, caller, translated, idempotencyKey, res);
    } catch (error) {
      if (!(error instanceof PolicyChangedError) || attempt === MAX_TRANSLATIONS) throw error;
    }
  }
}

async function submitTranslated(
  deps: EngineDeps,
  type: RequestType,
  caller: Caller,
  { value, pointerOf, ...translated }: Translated,
  idempotencyKey: string | null,
  res: Response,
) {
  try {
    const { body, ...parsed } = parseAdmission(type, value);
    if (body.idempotency_key !== undefined) {
      res.setHeader('X-Svc-Idempotency-Key', body.idempotency_key);
    }
    requireAllowed(body, caller);
    const { keyNo, tenantNo } = caller;
    const [problem] = (await deps.checkRegistry(tenantNo, new Map([[0, parsed]]))).values();
    if (problem !== undefined) throw problem;
    const intake = await deps.submit({
      tenantNo,
      keyNo,
      ...parsed,
      ...translated,
      requestHash: Buffer.from(parsed.requestHash, 'hex'),
      idempotencyKey,
      requestId: requestIdOf(res),
      traceparent: traceparentOf(res),
    });
    if (!('proofId' in intake)) throw new Problem(intake.outcome);
    return { tenantNo, proofId: intake.proofId, isRepeat: intake.outcome === 'repeat' };
  } catch (error) {
    if (error instanceof Problem) {
      for (const fault of error.options.errors ?? []) fault.pointer = pointerOf(fault.pointer);
    }
    throw error;
  }
}

export type AdmissionBody = ExecuteRequest | AgentEnvelope;

export interface RequestType {
  lane: Lane;
  schema: z.ZodType<AdmissionBody>;
  version: string;
}

export const EXECUTE: RequestType = {
  lane: 1,
  schema: executeRequestSchema,
  version: SCHEMA.executeRequest,
};
export const AGENT: RequestType = {
  lane: 2,
  schema: agentEnvelopeSchema,
  version: SCHEMA.agentEnvelope,
};

/** A body that matches its schema, and whose tenant, facts and parent are not checked yet. */
export interface ParsedAdmission extends RegistryCheckInput {
  body: AdmissionBody;
  /** The body in RFC 8785 form, which is stored. */
  request: Buffer;
  fixtureRef: string | null;
}

/** @throws Problem 400 */
export function parseAdmission(
  { lane, schema, version }: RequestType,
  value: JsonValue,
): ParsedAdmission {
  const body = parseDocument(schema, value, version);
  const request = Buffer.from(canonicalize(value));
  const requestHash = hashHex(nativeSha256, request);
  if ('run' in body && !isRunTimely(body.run, Date.now())) {
    throw new Problem('invalid_run', at('/run/id', 'must not have a time in the future'));
  }
  return {
    lane,
    body,
    request,
    requestHash,
    run: runPlaceOf(body),
    facts: ('facts' in body ? body.facts : undefined) ?? {},
    fixtureRef: 'kind' in body ? null : (body.proof_chain_fixture_ref ?? null),
    parent: 'parent_proof_id' in body ? { kind: body.kind, proofId: body.parent_proof_id } : null,
  };
}

/** Throws a 403 when the body names another tenant, or the restriction of the API key excludes the request. */
export function requireAllowed(body: AdmissionBody, caller: Caller): void {
  requireOwnTenant(caller, body.tenant_id);
  requireKeyAllows(caller, body);
}

export const ADMISSION_HEADERS: Record<string, string> = {
  'X-Svc-Idempotency-Key': 'Optional. The engine rejects the same key with another body.',
};

const POST = {
  method: 'post',
  tag: 'Admission',
  scopes: ['admit'],
  headers: ADMISSION_HEADERS,
  answerHeaders: {
    'Idempotent-Replayed': '`true` if this body was accepted before.',
    'X-Svc-Idempotency-Key': 'The `idempotency_key` of the body, echoed.',
  },
} as const;

export const POST_PROBLEMS: readonly ProblemCode[] = [
  'lane_locked',
  'tenant_not_allowlisted',
  'queue_too_deep',
  'invalid_idempotency_key',
  'tenant_body_mismatch',
  'key_restricted',
  'idempotency_conflict',
  'api_key_revoked',
  'policy_denied',
  'admission_failed',
  'policy_missing',
];

const undecidedSchema = z.discriminatedUnion('state', [
  admissionStatusSchema,
  approvalRequiredSchema,
]);
const UNDECIDED = 'Accepted and durable but not decided yet, or decided to require an approval';

function responses(receipt: z.ZodType) {
  return {
    200: json('Admitted: signed and in the log.', receipt),
    202: json(`${UNDECIDED}: follow \`Location\`.`, undecidedSchema, {
      Location: 'Path of the admission.',
      'Retry-After': 'Seconds to wait before polling `Location`.',
    }),
  };
}

export const executeOperation = admissionOperation(
  specOf({
    ...POST,
    id: 'executeIntent',
    path: '/v1/intents/execute',
    summary: 'Admit an execution',
    description:
      'Accepts the execution, waits until it is decided, signed and appended to the log, and returns the receipt. Sending the same body again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`.',
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
    responses: responses(executeReceiptSchema),
    problems: POST_PROBLEMS,
  }),
  EXECUTE,
);

const AGENT_EXAMPLE = {
  schema_version: SCHEMA.agentEnvelope,
  tenant_id: 'demo',
  agent: { id: 'booking-agent-7', framework: 'langgraph' },
  requested_at: '2026-11-20T17:29:00.123Z',
} as const;

export const agentAdmissionOperation = admissionOperation(
  specOf({
    ...POST,
    id: 'admitAgentAction',
    path: '/v1/agent/admissions',
    summary: 'Admit an agent action or record its outcome',
    description:
      'An envelope of kind `admission` requests a decision before the agent acts. The arguments stay with the agent: the envelope carries only their hash, and the `facts` that the policy decides on. An envelope of kind `outcome` reports the result of an admitted action and names its proof. An envelope of kind `close` ends a `run`, whose requests are numbered from 0: its `seq` is the count of these requests. A decision does not prove that the action was carried out, and an outcome records only the report of the agent. Sending the same envelope again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`.',
    body: {
      schema: agentEnvelopeSchema,
      examples: {
        admission: {
          ...AGENT_EXAMPLE,
          kind: 'admission',
          nonce: 'b3f1c2d4e5a69788b3f1c2d4',
          action: 'BOOK_RESERVATION',
          tool: 'reservations.create',
          arguments_hash: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
        },
        outcome: {
          ...AGENT_EXAMPLE,
          kind: 'outcome',
          nonce: '0c1d2e3f4a5b6c7d0c1d2e3f',
          parent_proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
          result: 'succeeded',
          result_hash: '60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752',
        },
        close: {
          ...AGENT_EXAMPLE,
          kind: 'close',
          nonce: '5e6f708192a3b4c55e6f7081',
          run: { id: '019aa2c1d0007000b1b2b3b4b5b6b7b8', seq: 0 },
        },
      },
    },
    responses: responses(agentReceiptSchema),
    problems: [
      ...POST_PROBLEMS,
      'invalid_fact',
      'invalid_run',
      'parent_not_found',
      'parent_not_admitted',
      'run_seq_taken',
      'run_closed',
      'run_incomplete',
    ],
  }),
  AGENT,
);

/** Responds like a repeated POST of the same body: with 200 only for the effect ADMIT. */
export const readAdmissionOperation = tenantOperation(
  {
    id: 'readAdmission',
    method: 'get',
    path: '/v1/admissions/{proof_id}',
    tag: 'Admission',
    summary: 'Retrieve an admission',
    scopes: ['admit', 'approve', 'read'],
    responses: {
      200: json(
        'Admitted: the receipt that the POST returns for a decided admission.',
        z.union([executeReceiptSchema, agentReceiptSchema]),
      ),
      202: json(`${UNDECIDED}.`, undecidedSchema, {
        Location: 'Path of this admission.',
        'Retry-After': 'Seconds to wait before polling `Location`.',
      }),
    },
    problems: [
      'admission_not_found',
      'policy_denied',
      'payload_erased',
      'admission_failed',
      ...REJECTION_CODES,
    ],
  },
  async ({ caller, ctx, inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const state = isProofId(proofId) ? await inTenant(admissionState, proofId) : null;
    if (state === null) throw new Problem('admission_not_found');
    addLogFields(res, { proof_id: proofId });
    if (state === 'pending') sendPending(res, proofId);
    else await sendOutcome(ctx, res, caller.tenantNo, state);
  },
);
