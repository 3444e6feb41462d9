import * as z from 'zod';
import { STATUSES, TRUST_CHAIN_SEQUENCE } from '../status.js';
import { facadeSchema } from './facade.js';
import { SCHEMA } from './ids.js';
import { proofEntrySchema } from './log-entry.js';
import { artifactKindSchema, assertsByStatus, logIndexSchema } from './primitives.js';
import { publicEventSchema } from './proof-view.js';
import { publicKeysSchema } from '../snapshot/keys.js';

/** The requested artifact and its verdict, the first members of every view. */
const viewMembers = {
  artifact_kind: artifactKindSchema,
  identifier: z.string(),
  lookup: z.strictObject({ requested: z.string(), matched_on: z.string().nullable() }),
  verification_status: z.enum(STATUSES),
  can_assert_validity: z.boolean(),
};

/**
 * History of an artifact: `/history` of a certificate or passport, `/timeline` of a trust artifact.
 * The events of the proof and of every artifact that this one depends on, oldest first; empty when
 * the lookup did not resolve.
 */
export const historySchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.history),
    ...viewMembers,
    events: z.array(publicEventSchema),
  })
  .refine(assertsByStatus, 'can_assert_validity does not follow from the status');
export type PublicHistory = z.infer<typeof historySchema>;

const chainLinkSchema = z.strictObject({
  stage: z.enum(TRUST_CHAIN_SEQUENCE),
  identifier: z.string(),
  /** Null for execution and evidence, which have no verdict. */
  verification_status: z.enum(STATUSES).nullable(),
  can_assert_validity: z.boolean(),
});

/** `/trust-chain` of a certificate or passport, `/chain` of a trust artifact. */
export const trustChainSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.trustChain),
    ...viewMembers,
    available: z.boolean(),
    sequence: z.array(z.enum(TRUST_CHAIN_SEQUENCE)),
    links: z.array(chainLinkSchema),
  })
  .refine(assertsByStatus, 'can_assert_validity does not follow from the status');
export type PublicTrustChain = z.infer<typeof trustChainSchema>;

/**
 * `/package` of a trust artifact: its public documents and the inclusion proof of its proof in one
 * document. `evidence` is null when the lookup did not resolve.
 */
export const trustPackageSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.trustPackage),
    ...viewMembers,
    facade: facadeSchema,
    history: historySchema,
    chain: trustChainSchema,
    evidence: z
      .strictObject({
        log_entry: proofEntrySchema,
        leaf_index: logIndexSchema,
        /** A C2SP `.tlog-proof`: leaf index, path and signed checkpoint. */
        tlog_proof: z.string(),
        /** The document at `/api/public/keys`. */
        keys: publicKeysSchema,
      })
      .nullable(),
  })
  .refine(assertsByStatus, 'can_assert_validity does not follow from the status');
export type PublicTrustPackage = z.infer<typeof trustPackageSchema>;
