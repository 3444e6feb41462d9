import * as z from 'zod';
import { isProofOnly } from '../status.js';
import { fixtureRefSchema, intentIdSchema, traceparentSchema } from './admission.js';
import { SCHEMA } from './ids.js';
import {
  actionSchema,
  base64Schema,
  effectSchema,
  environmentSchema,
  hashSchema,
  isAscending,
  keyIdSchema,
  logIndexSchema,
  proofIdSchema,
  runSchema,
  signatureSchema,
  tenantIdSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

const aepAgentSchema = z.strictObject({
  id: textSchema,
  framework: textSchema.exactOptional(),
  /** Whether the API key that sent the request is restricted to this agent. */
  bound: z.boolean(),
});

export type AepAgent = z.infer<typeof aepAgentSchema>;

/** The end of a run: the number of its other proofs, and the hash over their `[proof_id, aep_hash]` pairs. */
export const closedRunSchema = z.strictObject({ count: logIndexSchema, members_hash: hashSchema });
export type ClosedRun = z.infer<typeof closedRunSchema>;

const callMembers = {
  run: runSchema.exactOptional(),
  tool_call_id: textSchema.exactOptional(),
  traceparent: traceparentSchema.exactOptional(),
};

export const aepSubjectSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('execute'), intent_id: intentIdSchema, action: actionSchema }),
  z.strictObject({
    kind: z.literal('admission'),
    agent: aepAgentSchema,
    action: actionSchema,
    tool: textSchema.exactOptional(),
    parent_proof_id: proofIdSchema.exactOptional(),
    ...callMembers,
  }),
  z.strictObject({
    kind: z.literal('outcome'),
    agent: aepAgentSchema,
    parent_proof_id: proofIdSchema,
    result: z.enum(['succeeded', 'failed']),
    ...callMembers,
  }),
  z.strictObject({
    kind: z.literal('close'),
    agent: aepAgentSchema,
    run: runSchema,
    ...closedRunSchema.shape,
    traceparent: traceparentSchema.exactOptional(),
  }),
]);
export type AepSubject = z.infer<typeof aepSubjectSchema>;

/** Whether the subject is a report, of an outcome or of the end of a run, and not the request of an action. */
export function isReport({ kind }: Pick<AepSubject, 'kind'>): boolean {
  return kind === 'outcome' || kind === 'close';
}

export const aepDecisionSchema = z.strictObject({
  effect: effectSchema,
  reasons: z
    .array(textSchema)
    .refine(
      isAscending,
      'expected distinct policy ids, `fact.<name>` and `budget.<counter>` in ascending order',
    ),
});

export const aepPolicySchema = z.strictObject({
  digest: hashSchema,
  input_hash: hashSchema,
  engine: z.literal('cedar'),
  engine_version: textSchema,
});

export const aepEvidenceSchema = z.strictObject({
  fixture_ref: fixtureRefSchema.nullable(),
  fixture_hash: hashSchema.nullable(),
  /** The approval that caused a second decision. */
  approval: z
    .strictObject({
      pending_proof_id: proofIdSchema,
      approval_hash: hashSchema,
      registration_hash: hashSchema,
    })
    .nullable(),
});

const endSchema = timeSchema.nullable();
/** When each artifact expires; null for never. */
export const fullValiditySchema = z.strictObject({
  proof: endSchema,
  certificate: endSchema,
  passport: endSchema,
  trust: endSchema,
});
export type FullValidity = z.infer<typeof fullValiditySchema>;
export const proofValiditySchema = z.strictObject({ proof: endSchema });

/** The signed statement about one decision, outcome or close. */
export const aepSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.aep),
    execution_id: z.string().startsWith('exec_'),
    proof_id: proofIdSchema,
    environment: environmentSchema,
    tenant_id: tenantIdSchema,
    subject: aepSubjectSchema,
    request_commitment: hashSchema,
    /** Commitments to facts, counter values, and the hashes of arguments and result. */
    commitments: z
      .array(hashSchema)
      .refine(isAscending, 'expected distinct hashes in ascending order'),
    decision: aepDecisionSchema,
    policy: aepPolicySchema,
    evidence: aepEvidenceSchema,
    valid_until: z.union([fullValiditySchema, proofValiditySchema]),
    accepted_at: timeSchema,
    salt: z.string().regex(/^[0-9a-f]{64}$/, 'expected 32 bytes in hex'),
    key_id: keyIdSchema,
  })
  .refine((aep) => aep.execution_id === `exec_${aep.proof_id}`, {
    path: ['execution_id'],
    message: 'expected exec_ and the proof id',
  })
  .refine(
    ({ decision, subject, valid_until }) =>
      'trust' in valid_until ===
      !isProofOnly({ effect: decision.effect, isOutcome: isReport(subject) }),
    {
      path: ['valid_until'],
      message:
        'expected the members proof, certificate, passport and trust for the admission of an action, only proof for any other AEP',
    },
  );
export type Aep = z.infer<typeof aepSchema>;

export const AEP_PAYLOAD_TYPE = 'application/vnd.svc.aep+json';

/** A DSSE envelope around an AEP: one signature, canonical base64. */
export const dsseEnvelopeSchema = z.strictObject({
  payloadType: z.literal(AEP_PAYLOAD_TYPE),
  payload: base64Schema,
  signatures: z.tuple([z.strictObject({ keyid: keyIdSchema, sig: signatureSchema })]),
});
export type DsseEnvelope = z.infer<typeof dsseEnvelopeSchema>;

/** The signed AEP of a proof; its log entry has the hash of this document. */
export const proofRecordSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofRecord),
  proof_id: proofIdSchema,
  aep_hash: hashSchema,
  envelope: dsseEnvelopeSchema,
});
export type ProofRecord = z.infer<typeof proofRecordSchema>;
