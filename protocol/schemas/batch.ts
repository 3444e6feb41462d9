import * as z from 'zod';
import { BATCH_ID_PATTERN } from '../ids.js';
import {
  agentEnvelopeSchema,
  agentReceiptSchema,
  executeReceiptSchema,
  executeRequestSchema,
  explanationMembers,
} from './admission.js';
import { SCHEMA } from './ids.js';
import { matching, pageOf, proofIdSchema, timeSchema } from './primitives.js';
import { problemSchema } from './problem.js';

export const BATCH_ITEMS_MAX = 10_000;

export const batchIdSchema = matching(BATCH_ID_PATTERN, 'expected a batch id').meta({
  examples: ['batch_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f'],
});

/** Body of `POST /v1/batches`: single requests, in any order and mixture. */
export const batchRequestSchema = z
  .array(z.union([executeRequestSchema, agentEnvelopeSchema]))
  .min(1)
  .max(BATCH_ITEMS_MAX);

const countSchema = z.int().nonnegative();

export const BATCH_ITEM_STATES = [
  'admitted',
  'denied',
  'approval_required',
  'refused',
  'invalid',
  'pending',
  'erased',
] as const;

/** Answer of `POST /v1/batches` and of `GET /v1/batches/{batch_id}`. */
export const batchSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.batch),
    batch_id: batchIdSchema,
    state: z.enum(['processing', 'completed']),
    counts: z.strictObject({
      total: countSchema.min(1).describe('All items: the sum of the other counts.'),
      admitted: countSchema.describe('Signed and in the log, with the effect ADMIT.'),
      denied: countSchema.describe('Signed and in the log, with the effect DENY.'),
      approval_required: countSchema.describe(
        'Signed and in the log, with the effect REQUIRE_APPROVAL.',
      ),
      refused: countSchema.describe(
        'Items that were accepted, but rejected before a decision was signed.',
      ),
      invalid: countSchema.describe('Items that were not accepted, because they are invalid.'),
      pending: countSchema.describe('Durable, but not decided yet.'),
    }),
    replayed: countSchema.describe(
      'Items whose request equals that of an earlier admission, in this batch or before it.',
    ),
    rate: z
      .number()
      .nonnegative()
      .describe('Items completed per second, from acceptance until now or until completion.'),
    accepted_at: timeSchema,
    completed_at: timeSchema
      .nullable()
      .describe('Time of completion; null while items are pending.'),
  })
  .refine(
    ({ counts, state, completed_at: completedAt }) =>
      counts.admitted + counts.denied + counts.approval_required + counts.refused ===
        counts.total - counts.invalid - counts.pending &&
      (state === 'completed') === (counts.pending === 0) &&
      (state === 'completed') === (completedAt !== null),
    { path: ['counts'], message: 'the counts must add up to the total and match the state' },
  )
  .meta({
    examples: [
      {
        schema_version: SCHEMA.batch,
        batch_id: 'batch_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
        state: 'processing',
        counts: {
          total: 3,
          admitted: 1,
          denied: 0,
          approval_required: 0,
          refused: 0,
          invalid: 1,
          pending: 1,
        },
        replayed: 0,
        rate: 12.5,
        accepted_at: '2026-11-20T17:29:00.123Z',
        completed_at: null,
      },
    ],
  });
export type Batch = z.infer<typeof batchSchema>;

/** Answer of `GET /v1/batches`. */
export const batchListSchema = pageOf(SCHEMA.batchList, { batches: z.array(batchSchema).max(200) });

/** One item of a batch, with a receipt or a problem, or neither while pending. */
export const batchResultSchema = z.strictObject({
  index: countSchema.describe('Position in the batch, from 0.'),
  state: z.enum(BATCH_ITEM_STATES),
  status: z
    .int()
    .min(200)
    .max(599)
    .describe(
      'HTTP status that a single request would get; 202 while pending or for a required approval.',
    ),
  proof_id: proofIdSchema
    .describe('Proof id of the admission; absent for an invalid item.')
    .exactOptional(),
  replayed: z
    .literal(true)
    .describe(
      'The request of the item equals that of an earlier admission, in this batch or before it.',
    )
    .exactOptional(),
  receipt: z.union([executeReceiptSchema, agentReceiptSchema]).exactOptional(),
  ...explanationMembers,
  expires_at: timeSchema
    .describe('For a required approval: the time from which an approval has no effect.')
    .exactOptional(),
  problem: problemSchema.exactOptional(),
});
export type BatchResult = z.infer<typeof batchResultSchema>;

/** Answer of `GET /v1/batches/{batch_id}/results` as JSON: a page of items in batch order. */
export const batchResultsSchema = pageOf(SCHEMA.batchResults, {
  batch_id: batchIdSchema,
  results: z.array(batchResultSchema).max(1_000),
});
export type BatchResults = z.infer<typeof batchResultsSchema>;
