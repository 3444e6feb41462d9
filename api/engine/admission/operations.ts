import * as z from 'zod';
import { isProofId } from '#protocol/ids';
import {
  admissionStatusSchema,
  agentEnvelopeSchema,
  agentReceiptSchema,
  executeReceiptSchema,
  executeRequestSchema,
} from '#protocol/schemas/admission';
import { SCHEMA } from '#protocol/schemas/ids';
import { admissionState } from '#sql/admissions/outcomes';
import { Problem, type ProblemCode } from '../http/problem.js';
import { addLogFields } from '../http/request-context.js';
import { json, specOf } from '../operation.js';
import { tenantOperation } from '../http/gates.js';
import { sendOutcome, sendPending } from './outcome.js';
import { admissionOperation, AGENT, EXECUTE } from './admit.js';

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

const POST_PROBLEMS: readonly ProblemCode[] = [
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

function responses(receipt: z.ZodType) {
  return {
    200: json('Admitted: signed and in the log.', receipt),
    202: json('Accepted and durable, not decided yet: follow `Location`.', admissionStatusSchema, {
      Location: 'Path of the admission.',
      'Retry-After': 'Seconds.',
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
      'An envelope of kind `admission` requests a decision before the agent acts. The arguments stay with the agent: the envelope carries only their hash. An envelope of kind `outcome` reports the result of an admitted action and names its proof. A decision is no evidence that the action was carried out; an outcome records the report. Sending the same envelope again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`.',
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
      },
    },
    responses: responses(agentReceiptSchema),
    problems: [...POST_PROBLEMS, 'parent_not_found', 'parent_not_admitted'],
  }),
  AGENT,
);

/** Responds like the POST would have after waiting until now. Only a 200 is an admission. */
export const readAdmissionOperation = tenantOperation(
  {
    id: 'readAdmission',
    method: 'get',
    path: '/v1/admissions/{proof_id}',
    tag: 'Admission',
    summary: 'Retrieve an admission',
    scopes: ['admit', 'read'],
    responses: {
      200: json(
        'Admitted: the receipt that the POST returns for a decided admission.',
        z.union([executeReceiptSchema, agentReceiptSchema]),
      ),
      202: json('Accepted and durable, not decided yet.', admissionStatusSchema, {
        Location: 'This address.',
        'Retry-After': 'Seconds.',
      }),
    },
    problems: [
      'admission_not_found',
      'policy_denied',
      'payload_erased',
      'lane_locked',
      'api_key_revoked',
      'tenant_not_allowlisted',
      'admission_failed',
    ],
  },
  async ({ ctx, inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const state = isProofId(proofId)
      ? await inTenant((sql, tenantNo) => admissionState(sql, tenantNo, proofId))
      : null;
    if (state === null) {
      throw new Problem('admission_not_found');
    }
    addLogFields(res, { proof_id: proofId });
    if (state === 'pending') sendPending(res, proofId);
    else await sendOutcome(ctx, res, proofId, state);
  },
);
