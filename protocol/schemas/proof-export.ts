import * as z from 'zod';
import { attempt } from '../errors.js';
import { canonicalize, type JsonValue } from '../json.js';
import { aepDecisionSchema, aepSchema, dsseEnvelopeSchema, proofRecordSchema } from './aep.js';
import { approvalSchema, registrationSchema } from './approvals.js';
import { SCHEMA } from './ids.js';
import { aepKeyEntrySchema, approverEntrySchema, proofEntrySchema } from './log-entry.js';
import {
  HASH_PATTERN,
  hashSchema,
  logIndexSchema,
  merkleHashSchema,
  proofIdSchema,
} from './primitives.js';
import { verdictStatementSchema } from './verdict.js';

/** The position of a leaf under a signed checkpoint. */
export const inclusionProofSchema = z.strictObject({
  leaf_index: logIndexSchema,
  tree_size: logIndexSchema,
  /** RFC 6962 §2.1.1, from the leaf's sibling up, base64 as in a tlog-proof. */
  path: z.array(merkleHashSchema).max(64),
  /** The signed note of the checkpoint at `tree_size`. */
  checkpoint: z.string(),
});
export type InclusionProof = z.infer<typeof inclusionProofSchema>;

const leafMembers = {
  schema_version: z.literal(SCHEMA.inclusion),
  proof_id: proofIdSchema,
  leaf_index: logIndexSchema,
  /** SHA-256 of 0x00 and the canonical bytes of `entry` (RFC 6962 §2.1), base64. */
  leaf_hash: merkleHashSchema,
  entry: proofEntrySchema,
};

/** Answer of `GET /v1/proofs/{proof_id}/inclusion`. */
export const inclusionResponseSchema = z.discriminatedUnion('state', [
  z.strictObject({
    ...leafMembers,
    state: z.literal('included'),
    /** The root of the path and of the checkpoint, base64. */
    root: merkleHashSchema,
    inclusion: inclusionProofSchema,
  }),
  /** The proof is in the log permanently, but no signed checkpoint covers it yet. */
  z.strictObject({
    ...leafMembers,
    state: z.literal('pending_checkpoint'),
    root: z.null(),
    inclusion: z.null(),
  }),
]);
export type InclusionResponse = z.infer<typeof inclusionResponseSchema>;

const isJson = (value: unknown): boolean =>
  attempt(() => canonicalize(value as JsonValue)) !== undefined;

/** A salt, a name and a value, like a disclosure of RFC 9901; the AEP has the hash of the three. */
export const disclosureSchema = z.tuple([
  z.string().regex(HASH_PATTERN, 'expected 32 bytes in hex'),
  z.string().min(1),
  z.unknown().refine(isJson, 'expected JSON') as unknown as z.ZodType<JsonValue>,
]);

/** Ascending by name. */
const disclosuresSchema = z.array(disclosureSchema);

/** The log entry that activates the AEP key of a proof. */
const activationSchema = z.strictObject({
  entry: aepKeyEntrySchema,
  /** C2SP tlog-proof of `entry`; null until a checkpoint covers the proof. */
  tlog_proof: z.string().nullable(),
});

/** The approval of a second decision, and the log entry that activates the registration. */
const exportedApprovalSchema = z.strictObject({
  envelope: approvalSchema,
  registration: registrationSchema,
  entry: approverEntrySchema,
  tlog_proof: z.string().nullable(),
});

/**
 * Everything that offline verification needs except trusted keys: the key in the document only
 * identifies the key that readers must obtain from another source. The verdict is unsigned, so only
 * the registry can confirm it.
 */
export const proofExportSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofExport),
  proof_id: proofIdSchema,
  aep: aepSchema,
  envelope: dsseEnvelopeSchema,
  proof_record: proofRecordSchema,
  entry: proofEntrySchema,
  inclusion: inclusionProofSchema,
  key: activationSchema,
  approval: exportedApprovalSchema.nullable(),
  /** The disclosure of `request_hash`, or the disclosures that the tenant selected. */
  disclosures: disclosuresSchema,
  /** The registry's statement at the time of the export. */
  verdict: verdictStatementSchema,
  /** The log's C2SP vkey; null if the configuration of the engine lacks it. */
  log_vkey: z.string().min(1).nullable(),
});
export type ProofExport = z.infer<typeof proofExportSchema>;

/**
 * The signed proof behind a receipt: the AEP in the proof record commits to the request hash that
 * `disclosures` shows, and the log entry commits to the AEP.
 */
export const receiptEvidenceSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.receiptEvidence),
  proof_record: proofRecordSchema,
  entry: proofEntrySchema,
  key: activationSchema,
  approval: exportedApprovalSchema.nullable(),
  disclosures: disclosuresSchema,
  /** C2SP tlog-proof of `entry` under the first checkpoint that covers it; null before that. */
  tlog_proof: z.string().nullable(),
});
export type ReceiptEvidence = z.infer<typeof receiptEvidenceSchema>;

/** Names a proof by its id, or contains its AEP and envelope. */
export const verifyRequestSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.verifyRequest),
    proof_id: proofIdSchema.exactOptional(),
    aep: aepSchema.exactOptional(),
    envelope: dsseEnvelopeSchema.exactOptional(),
  })
  .refine(
    ({ proof_id, aep, envelope }) =>
      [aep, envelope].every((one) => (one === undefined) === (proof_id !== undefined)),
    'expected either proof_id, or aep and envelope',
  );
export type VerifyRequest = z.infer<typeof verifyRequestSchema>;

/** Body of `POST /v1/proofs/verify`: a request, or the document of `export?format=json`. */
export const verifyBodySchema = z.discriminatedUnion('schema_version', [
  proofExportSchema,
  verifyRequestSchema,
]);
export type VerifyBody = z.infer<typeof verifyBodySchema>;

/** Names a proof, and optionally a policy set whose decision is compared with the recorded decision. */
export const replayRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.replayRequest),
  proof_id: proofIdSchema,
  policy_digest: hashSchema.exactOptional(),
});

/** Body of `POST /v1/proofs/replay`: a request, or the document of `export?format=json`. */
export const replayBodySchema = z.discriminatedUnion('schema_version', [
  proofExportSchema,
  replayRequestSchema,
]);
export type ReplayBody = z.infer<typeof replayBodySchema>;

export const replayDifferenceSchema = z.strictObject({
  /** RFC 6901 pointer into the AEP; '' is the whole AEP. */
  pointer: z.string(),
  /**
   * `recorded` or `replayed` is absent if that AEP lacks the member. Both are absent if the API key
   * may not read the proof.
   */
  recorded: z.unknown().exactOptional(),
  replayed: z.unknown().exactOptional(),
});
export type ReplayDifference = z.infer<typeof replayDifferenceSchema>;

/** The decision of another policy set for the same input. Proves nothing. */
export const counterfactualSchema = z.strictObject({
  policy_digest: hashSchema,
  decision: aepDecisionSchema,
  /** Sentences for display, by policy id. */
  sentences: z.record(z.string(), z.string()),
  /** Whether the decision or its reasons differ from those recorded. */
  differs: z.boolean(),
});
export type Counterfactual = z.infer<typeof counterfactualSchema>;

/** Answer of `POST /v1/proofs/replay`. */
export const replaySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.replay),
  proof_id: proofIdSchema,
  /**
   * `match`: an engine of the version that decided derives an AEP with equal members. The result of any other version
   * is `engine_version_differs`.
   */
  result: z.enum(['match', 'divergence', 'engine_version_differs']),
  differences: z.array(replayDifferenceSchema),
  engine: z.strictObject({ recorded_version: z.string(), running_version: z.string() }),
  /** The policy set of the recorded decision, as pinned at intake. */
  policy_digest: hashSchema,
  /** Hash of the re-derived policy input; null when the stored request is not the accepted one. */
  input_hash: hashSchema.nullable(),
  counterfactual: counterfactualSchema.nullable(),
});
export type Replay = z.infer<typeof replaySchema>;
