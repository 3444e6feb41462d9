import {
  agentEnvelopeSchema,
  agentReceiptSchema,
  type AgentEnvelope,
} from '#protocol/schemas/agent';
import { SCHEMA } from '#protocol/schemas/ids';
import type { EngineContext } from '../context.js';
import { findParents } from '#sql/admissions/parents';
import {
  ADMISSION_ANSWER_HEADERS,
  ADMISSION_HEADERS,
  ADMISSION_PROBLEMS,
  admissionResponses,
  admit,
  parentProblem,
} from '../admission/admit.js';
import type { Caller } from '../http/authenticate.js';
import { AGENT_LANE } from '../admission/lanes.js';
import type { Operation, OperationSpec } from '../operation.js';

const EXAMPLE = {
  schema_version: SCHEMA.agentEnvelope,
  tenant_id: 'demo',
  agent: { id: 'booking-agent-7', framework: 'langgraph' },
  requested_at: '2026-11-20T17:29:00.123Z',
} as const;

const spec: OperationSpec = {
  id: 'admitAgentAction',
  method: 'post',
  path: '/v1/agent/admissions',
  tag: 'Admission',
  summary: 'Admit an agent action or record its outcome',
  description:
    'An envelope of kind `admission` requests a decision before the agent acts. The arguments stay with the agent: the envelope carries only their hash. An envelope of kind `outcome` reports the result of an admitted action and names its proof. A decision is no evidence that the action was carried out; an outcome records the report. Sending the same envelope again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`.',
  scopes: ['admit'],
  headers: ADMISSION_HEADERS,
  answerHeaders: ADMISSION_ANSWER_HEADERS,
  body: {
    schema: agentEnvelopeSchema,
    examples: {
      admission: {
        ...EXAMPLE,
        kind: 'admission',
        nonce: 'b3f1c2d4e5a69788b3f1c2d4',
        action: 'BOOK_RESERVATION',
        tool: 'reservations.create',
        arguments_hash: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
      },
      outcome: {
        ...EXAMPLE,
        kind: 'outcome',
        nonce: '0c1d2e3f4a5b6c7d0c1d2e3f',
        parent_proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
        result: 'succeeded',
        result_hash: '60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752',
      },
    },
  },
  produces: ['application/json'],
  responses: admissionResponses(agentReceiptSchema),
  problems: [...ADMISSION_PROBLEMS, 'parent_not_found', 'parent_not_admitted'],
};

export const agentAdmissionOperation: Operation = {
  spec,
  handler: (deps) =>
    admit(deps, {
      spec,
      lane: AGENT_LANE,
      validateReferences: (caller, envelope) => requireParent(deps.ctx, caller, envelope),
    }),
};

async function requireParent(
  { tenantSql }: EngineContext,
  { tenantNo }: Caller,
  envelope: AgentEnvelope,
): Promise<void> {
  const named = AGENT_LANE.parentOf?.(envelope) ?? null;
  if (named === null) return;
  const [parent = null] = await tenantSql.run(tenantNo, (sql) =>
    findParents(sql, tenantNo, [named.proofId]),
  );
  const problem = parentProblem(named.kind, parent);
  if (problem !== null) throw problem;
}
