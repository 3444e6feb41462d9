import { randomBytes } from 'node:crypto';
import type { RequestHandler } from 'express';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { BATCH_ITEMS_MAX, batchRequestSchema, batchSchema } from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import { BusyError, Limiter } from '#runtime/concurrency';
import { acceptBatch, type BatchItem, type BatchOutcome, type NewBatch } from '#sql/batches/accept';
import { readBatch } from '#sql/batches/read';
import { ADMISSION_HEADERS } from '../admission/admit.js';
import { ENGINE_DEFAULTS, type EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { keepTraces, wakeWorkers } from '../admission/submit.js';
import { authorizeAdmission, readAdmissionHeaders, BODY_LIMIT } from '../http/request.js';
import { addLogFields, requestIdOf, traceparentOf, sendJson } from '../http/respond.js';
import { newUuidHex } from '#sql/db/columns';
import { Problem } from '../http/problem.js';
import { json, specOf, type EngineDeps, type Operation } from '../operation.js';
import { JSON_LINES, parseBatch, type ParsedBatch } from './parse-batch.js';
import { batchDocument } from './results.js';
import { type BatchUpload, BatchUploads } from './uploads.js';

const spec = specOf({
  id: 'createBatch',
  method: 'post',
  path: '/v1/batches',
  tag: 'Admission',
  summary: 'Admit a batch of up to 10,000 items',
  description: [
    'Items are bodies of `POST /v1/intents/execute` and `POST /v1/agent/admissions` in any mixture; `schema_version` selects the type of each. `application/json` takes an array, `application/x-ndjson` one item per line. The engine responds once the batch is durable. `Location` is the path of the batch.',
    'Items are independent: the engine rejects an invalid item and lists its problem, with its index, among the results. The engine rejects a body that it cannot split into items. Sending the same items in the same order, in any formatting, returns the first batch with `Idempotent-Replayed: true`, or creates a new batch if the first batch rejected items that may be accepted now. An item that was admitted before, in this batch or earlier, gets the first receipt.',
    'A batch counts as one request of the quota. Batches and single admissions do not delay each other, and the workers process the batches of all tenants in rotation. All batches together may fill half of the admission queue, and the batches of one tenant a quarter. A batch that does not fit gets 503, and none of its items is accepted.',
  ].join('\n\n'),
  scopes: ['admit'],
  headers: ADMISSION_HEADERS,
  answerHeaders: { 'Idempotent-Replayed': '`true` if these items were accepted before.' },
  body: {
    schema: batchRequestSchema,
    limit: ENGINE_DEFAULTS.batchLimit,
    alsoAs: { [JSON_LINES]: 'text' },
    examples: {
      mixed: [
        {
          schema_version: SCHEMA.executeRequest,
          intent_id: 'intent-1',
          tenant_id: 'demo',
          action: 'BOOK_RESERVATION',
        },
        agentEnvelopeSchema.parse({
          schema_version: SCHEMA.agentEnvelope,
          tenant_id: 'demo',
          agent: { id: 'booking-agent-7' },
          requested_at: '2026-11-20T17:29:00.123Z',
          kind: 'admission',
          nonce: 'b3f1c2d4e5a69788b3f1c2d4',
          action: 'SEND_REPORT',
        }),
      ],
    },
    problems: [
      'body_too_large',
      'too_many_items',
      'unsupported_media_type',
      'unsupported_content_encoding',
      'incomplete_body',
      'malformed_json',
      'invalid_field',
      'empty_batch',
    ],
  },
  responses: {
    202: json('Accepted and durable: follow `Location`.', batchSchema, {
      Location: 'Path of the batch.',
    }),
  },
  problems: [
    'lane_locked',
    'key_restricted',
    'tenant_not_allowlisted',
    'queue_too_deep',
    'too_many_batches',
    'upload_too_slow',
    'invalid_idempotency_key',
    'idempotency_conflict',
    'policy_missing',
  ],
});

export const createBatchOperation: Operation = { spec, handler: createBatch };

/** Maximum number of concurrent batches per tenant. A batch is in memory until it is durable. */
export const BATCHES_OF_ONE_TENANT = 2;
/** Longest wait of a complete batch for a free commit slot, in milliseconds. */
const COMMIT_TIMEOUT_MS = 2_000;

/** Checks a batch in the same order as a single admission. */
function createBatch(deps: EngineDeps): RequestHandler {
  const { ctx } = deps;
  const uploads = new BatchUploads({
    perTenant: BATCHES_OF_ONE_TENANT,
    budget: ctx.batchesAtOnce * ctx.batchLimit,
  });
  const commits = new Limiter({
    total: ctx.batchesAtOnce,
    perOwner: BATCHES_OF_ONE_TENANT,
    maxWaiting: BATCHES_OF_ONE_TENANT,
    timeoutMs: COMMIT_TIMEOUT_MS,
  });
  const admissions = ctx.maxQueuedAdmissions;
  // Leaves half of the queue to single admissions, and half of the batches' part to other tenants.
  const batches = Math.floor(admissions / 2);
  const capacity = { admissions, batches, own: Math.floor(batches / 2) };
  const commit: Commit = (batch) =>
    commits
      .run(batch.tenantNo, () => acceptBatch(ctx.sql, batch, capacity))
      .catch((error: unknown) => {
        throw error instanceof BusyError
          ? new Problem('too_many_batches', { cause: error, isTenantLimit: error.isOwnerLimit })
          : error;
      });
  const limits = {
    body: ctx.batchLimit,
    item: BODY_LIMIT,
    // A batch larger than a tenant's share of the queue gets 413, because a 503 would invite a retry.
    items: Math.min(BATCH_ITEMS_MAX, capacity.own),
  };
  return async (req, res) => {
    let upload: BatchUpload | null = null;
    let isAccepted = false;
    try {
      const caller = await authorizeAdmission(deps, spec, req, res);
      upload = uploads.start(caller.tenantNo);
      const batch = await parseBatch(req, limits, caller, upload);
      const idempotencyKey = readAdmissionHeaders(req, spec);
      if (batch.fault !== null) throw batch.fault;
      const about = {
        requestId: requestIdOf(res),
        idempotencyKey,
        traceparent: traceparentOf(res),
      };
      const { batchId, isRepeat } = await storeBatch(deps, caller, batch, about, commit);
      isAccepted = true;
      addLogFields(res, { batch_id: batchId });
      const stored = await readBatch(ctx.sql, caller.tenantNo, batchId);
      if (stored === null) throw new Error(`accepted batch ${batchId} is missing`);
      if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');
      res.setHeader('Location', `/v1/batches/${batchId}`);
      sendJson(res, 202, batchDocument(stored));
    } catch (error) {
      // The metric counts a rejected batch as 1: its number of items may be unknown.
      if (!isAccepted) ctx.metrics?.admissions('batch', 'refused', 1);
      throw error;
    } finally {
      upload?.release();
    }
  };
}

type Commit = (batch: NewBatch) => Promise<BatchOutcome>;

interface AboutRequest {
  requestId: string;
  idempotencyKey: string | null;
  traceparent: string | null;
}

async function storeBatch(
  deps: EngineDeps,
  { tenantNo, keyNo }: Pick<Caller, 'keyNo' | 'tenantNo'>,
  batch: ParsedBatch,
  about: AboutRequest,
  commit: Commit,
): Promise<{ batchId: string; isRepeat: boolean }> {
  const { ctx } = deps;
  const { total, itemsHash, items } = batch;
  const wrong = new Map([...batch.problems, ...(await deps.checkRegistry(tenantNo, items))]);
  const accepted: BatchItem[] = [];
  for (const [index, item] of items) if (!wrong.has(index)) accepted.push({ index, ...item });
  const batchHex = newUuidHex();
  const { requestId, idempotencyKey } = about;
  const outcome = await commit({
    requestId,
    idempotencyKey,
    batchId: `batch_${batchHex}`,
    tenantNo,
    keyNo,
    itemsHash,
    total,
    items: accepted,
    problems: new Map([...wrong].map(([index, problem]) => [index, stored(problem)])),
    seeds: randomBytes(total * 32),
  });
  switch (outcome.outcome) {
    case 'run_seq_taken': {
      // Rejects the items whose `seq` is in use, and tries again with the other items.
      const problems = new Map(batch.problems);
      for (const index of outcome.indexes) problems.set(index, new Problem(outcome.outcome));
      const left = new Map([...items].filter(([index]) => !problems.has(index)));
      const rest = { ...batch, items: left, problems };
      return storeBatch(deps, { tenantNo, keyNo }, rest, about, commit);
    }
    case 'idempotency_conflict':
      throw new Problem('idempotency_conflict');
    case 'queue_full':
      throw new Problem('queue_too_deep', { isTenantLimit: outcome.isTenantLimit });
    case 'repeat':
      ctx.metrics?.admissions('batch', 'replayed', total);
      return { batchId: outcome.batchId, isRepeat: true };
    case 'accepted':
      ctx.metrics?.admissions('batch', 'accepted', accepted.length);
      ctx.metrics?.admissions('batch', 'refused', wrong.size);
      if (outcome.awaited > 0) announceBatch(ctx, batchHex, accepted, about);
      return { batchId: outcome.batchId, isRepeat: false };
  }
}

function announceBatch(
  ctx: EngineContext,
  batchHex: string,
  items: readonly BatchItem[],
  { requestId, traceparent }: AboutRequest,
): void {
  const traces = items.map(({ proofId }) => ({ proofId, traceparent }));
  void wakeWorkers(
    ctx,
    keepTraces(ctx, traces).then(() => ctx.queue.addBatches([batchHex], [requestId])),
    'the batch is delayed until the workers poll the registry',
    { request_id: requestId },
  );
}

/** Stores only the members of a problem that do not follow from its code. */
function stored({ code, message: detail, options: { errors } }: Problem): string {
  return JSON.stringify({ code, detail, ...(errors && { errors }) });
}
