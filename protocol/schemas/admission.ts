import * as z from 'zod';
import { factsSchema } from './facts.js';
import { SCHEMA } from './ids.js';
import {
  actionSchema,
  hashSchema,
  matching,
  proofIdSchema,
  runSchema,
  tenantIdSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

export const intentIdSchema = textSchema;
export const fixtureRefSchema = textSchema;
/** The idempotency key is opaque to the service, and printable ASCII, because a header returns it. */
export const idempotencyKeySchema = matching(
  /^[\x20-\x7e]{1,255}$/,
  'expected 1 to 255 printable ASCII characters',
);

/** Body of `POST /v1/intents/execute`. */
export const executeRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.executeRequest),
  intent_id: intentIdSchema.describe('Your name for the intent.'),
  tenant_id: tenantIdSchema.describe('Your tenant, as in the header.'),
  action: actionSchema.describe('The action to admit.'),
  idempotency_key: idempotencyKeySchema
    .describe('Opaque; the response repeats it in the header `X-Svc-Idempotency-Key`.')
    .exactOptional(),
  proof_chain_fixture_ref: fixtureRefSchema
    .describe(
      'The name of a fixture, a document that the operator stored; the proof binds the name even if no such fixture is stored.',
    )
    .exactOptional(),
});
export type ExecuteRequest = z.infer<typeof executeRequestSchema>;

export const receiptMembers = {
  status: z.enum(['ADMITTED', 'DENIED', 'APPROVAL_REQUIRED']),
  request_hash: hashSchema.describe('SHA-256 of the body’s RFC 8785 form.'),
  registry_proof_id: proofIdSchema.describe('The proof id.'),
  response_hash: hashSchema.describe(
    'SHA-256 of the RFC 8785 form of this receipt without this field.',
  ),
  vee_recorded: z.literal(true),
};

/** The response to an execute request: these seven fields and no others. */
export const executeReceiptSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.executeReceipt),
  receipt_id: z.string().regex(/^svc-runtime-execute-[0-9a-f]{16}$/),
  ...receiptMembers,
});
export type ExecuteReceipt = z.infer<typeof executeReceiptSchema>;

/** The body of a 202: the admission is durable and undecided. */
export const admissionStatusSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.admissionStatus),
  proof_id: proofIdSchema,
  state: z.literal('pending'),
});

export const agentSchema = z.strictObject({
  id: textSchema,
  framework: textSchema.exactOptional(),
});

/** Distinguishes admissions with otherwise equal envelopes; equal envelopes are one admission. */
export const nonceSchema = matching(
  /^[A-Za-z0-9_-]{16,128}$/,
  'expected 16 to 128 characters of A-Z a-z 0-9 _ -',
);

export const traceparentSchema = matching(
  /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/,
  'expected the W3C traceparent of the call, version 00',
).refine((text) => !/-0+-/.test(text), 'expected ids that are not all zeros');

const commonMembers = {
  schema_version: z.literal(SCHEMA.agentEnvelope),
  tenant_id: tenantIdSchema.describe('Your tenant, as in the header.'),
  agent: agentSchema,
  requested_at: timeSchema.describe(
    'Time of the request by the agent’s clock: recorded, never validated.',
  ),
  nonce: nonceSchema.describe('Distinguishes two envelopes that are equal in all other members.'),
  idempotency_key: idempotencyKeySchema
    .describe('Opaque; the response repeats it in the header `X-Svc-Idempotency-Key`.')
    .exactOptional(),
  traceparent: traceparentSchema.exactOptional(),
};

const envelopeMembers = {
  ...commonMembers,
  tool_call_id: textSchema.describe('The id that the model gave to the tool call.').exactOptional(),
  run: runSchema
    .describe(
      'The run of this request, and its number in the run, from 0. The agent creates the id.',
    )
    .exactOptional(),
};

/**
 * An agent requests permission to use a tool. The arguments stay with the agent; the envelope has
 * their hash, and the facts that the policy decides on.
 */
export const agentAdmissionSchema = z.strictObject({
  ...envelopeMembers,
  kind: z.literal('admission'),
  action: actionSchema,
  tool: textSchema.exactOptional(),
  arguments_hash: hashSchema
    .describe('SHA-256 of the RFC 8785 form of the arguments, which stay with the agent.')
    .exactOptional(),
  parent_proof_id: proofIdSchema
    .describe('An earlier proof of your tenant that led to this action.')
    .exactOptional(),
  facts: factsSchema
    .describe(
      'Values that the policy decides on, by name, at most 4,096 bytes in RFC 8785 form. The schema of the policy set gives each name its type.',
    )
    .exactOptional(),
});

/**
 * An agent reports the outcome of an admitted action, which the admission itself does not prove.
 */
export const agentOutcomeSchema = z.strictObject({
  ...envelopeMembers,
  kind: z.literal('outcome'),
  parent_proof_id: proofIdSchema.describe(
    'The proof of the admitted action whose outcome this is.',
  ),
  result: z.enum(['succeeded', 'failed']),
  result_hash: hashSchema.describe('SHA-256 of the result’s RFC 8785 form.').exactOptional(),
});

/** An agent ends a run: the `seq` of this request is the number of the requests before it. */
export const agentCloseSchema = z.strictObject({
  ...commonMembers,
  kind: z.literal('close'),
  run: runSchema.describe('The run, and the number of its requests as `seq`.'),
});

export const agentEnvelopeSchema = z.discriminatedUnion('kind', [
  agentAdmissionSchema,
  agentOutcomeSchema,
  agentCloseSchema,
]);
export type AgentEnvelope = z.infer<typeof agentEnvelopeSchema>;

/** The response to an agent request: the fields of an execute receipt, with other `schema_version` and `receipt_id`. */
export const agentReceiptSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.agentReceipt),
  receipt_id: z.string().regex(/^svc-agent-admission-[0-9a-f]{16}$/),
  ...receiptMembers,
});
export type AgentReceipt = z.infer<typeof agentReceiptSchema>;

/** Why an action requires an approval. An engine that is older than its client omits these members. */
export const explanationMembers = {
  reasons: z
    .array(z.string())
    .describe('Ids of the policies that require the approval, sorted.')
    .exactOptional(),
  sentences: z
    .record(z.string(), z.string())
    .describe('Explanations of these policies, by policy id.')
    .exactOptional(),
};

/** The body of a 202: the decision, signed and in the log, requires an approval. */
export const approvalRequiredSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.admissionStatus),
  proof_id: proofIdSchema,
  state: z.literal('approval_required'),
  receipt: z.union([executeReceiptSchema, agentReceiptSchema]),
  ...explanationMembers,
  expires_at: timeSchema.describe('An approval that arrives at this time or later has no effect.'),
});
