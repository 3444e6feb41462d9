import { randomBytes } from 'node:crypto';
import type { Request, Response } from 'express';
import { agentEnvelopeSchema } from '#protocol/schemas/agent';
import { BATCH_ITEMS_MAX, batchRequestSchema, batchSchema } from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import { canonicalBytes } from '#protocol/canonical-json';
import { acceptBatch, type BatchItem, type Room } from '#sql/batches/accept';
import { readBatch as readStored } from '#sql/batches/read';
import { TenantBusyError, TenantLimiter } from '#sql/db/tenant-connections';
import { ADMISSION_HEADERS, idempotencyConflict } from '../admission/admit.js';
import { tooDeep } from '../admission/backpressure.js';
import { batchDocument } from '../batches/documents.js';
import { JSON_LINES, missingParents, readBatch, type ReadBatch } from '../batches/read-batch.js';
import { BatchUploads, tooManyBatches } from '../batches/uploads.js';
import { ENGINE_DEFAULTS, type EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { addLogFields, requestIdOf } from '../http/request-context.js';
import {
  readIdempotencyKey,
  requireAcceptable,
  requireAllowlisted,
  requireApiVersion,
  requireOpenLane,
  requireScope,
  requireTenantHeader,
} from '../http/gates.js';
import { newUuidHex } from '../http/new-id.js';
import type { Problem } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';

const spec: OperationSpec = {
  id: 'createBatch',
  method: 'post',
  path: '/v1/batches',
  tag: 'Admission',
  summary: 'Admit up to 10,000 executions and agent envelopes at once',
  description: [
    'Takes what would be sent alone to `POST /v1/intents/execute` and `POST /v1/agent/admissions`, in any mixture; the `schema_version` of each item says which. As `application/json` it is an array, as `application/x-ndjson` one item a line. The answer comes when all of it is durable; what becomes of each item is at `Location`.',
    'Items are independent: one that is at fault is not accepted, and its problem, with its index, is among the results. A body that cannot be cut into items is refused whole. The same items again, in the same order and however they are written, are the first batch: `Idempotent-Replayed: true`. An item that was admitted before, in this batch or earlier, gets the first receipt.',
    'A batch counts as one request of your quota. It waits behind nobody who sends alone, nor do they behind it; tenants with batches take turns. All batches together may fill half of what the deployment lets wait, and those of one tenant half of that: one that does not fit is 503, and nothing of it is accepted.',
  ].join('\n\n'),
  scopes: ['admit'],
  headers: ADMISSION_HEADERS,
  answerHeaders: { 'Idempotent-Replayed': '`true` when these items were accepted before.' },
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
  produces: ['application/json'],
  responses: {
    202: {
      description: 'Accepted and durable: follow `Location`.',
      content: { 'application/json': batchSchema },
      headers: { Location: 'Where the batch is.' },
    },
  },
  problems: [
    'lane_locked',
    'tenant_not_allowlisted',
    'queue_too_deep',
    'too_many_batches',
    'upload_too_slow',
    'invalid_idempotency_key',
    'idempotency_conflict',
    'policy_missing',
  ],
};

export const createBatchOperation: Operation = { spec, handler: createBatch };

/** Longest wait of a complete batch for those that are made durable, in milliseconds. */
const COMMIT_TIMEOUT_MS = 2_000;

/** The order of the steps is that of the admission lanes. */
function createBatch({ ctx, authenticate, backpressure }: EngineDeps) {
  const perTenant = ctx.batchesOfOneTenant;
  const uploads = new BatchUploads({ perTenant, budget: ctx.batchesAtOnce * ctx.batchLimit });
  const commits = new TenantLimiter({
    total: ctx.batchesAtOnce,
    perTenant,
    maxWaiting: perTenant,
    timeoutMs: COMMIT_TIMEOUT_MS,
  });
  const room = roomOf(ctx);
  const limits = {
    body: ctx.batchLimit,
    item: ctx.bodyLimit,
    // One that could never fit is not asked to come again.
    items: Math.min(BATCH_ITEMS_MAX, room.own),
  };
  return async (req: Request, res: Response): Promise<void> => {
    const caller = await authenticate(req, res);
    requireOpenLane(ctx, caller);
    requireTenantHeader(req, caller);
    requireScope(caller, spec.scopes);
    requireAllowlisted(caller);
    await backpressure.requireCapacity();
    const upload = uploads.start(caller.tenantNo);
    let isAccepted = false;
    try {
      const batch = await readBatch(req, limits, caller, upload);
      requireAcceptable(req, spec.produces);
      requireApiVersion(req);
      const idempotencyKey = readIdempotencyKey(req);
      if (batch.fault !== null) throw batch.fault;
      const about = { requestId: requestIdOf(res), idempotencyKey };
      const { batchId, isRepeat } = await accept(ctx, caller, batch, about, room, commits);
      isAccepted = true;
      addLogFields(res, { batchId });
      const stored = await readStored(ctx.sql, caller.tenantNo, batchId);
      if (stored === null) throw new Error('a batch that was accepted is not there');
      if (isRepeat) res.setHeader('Idempotent-Replayed', 'true');
      res.setHeader('Location', `/v1/batches/${batchId}`);
      sendJson(res, 202, canonicalBytes(batchDocument(stored)));
    } catch (error) {
      // How many items were in it is not known, or does not matter: none of them came in.
      if (!isAccepted) ctx.metrics?.admissions('batch', 'refused', 1);
      throw error;
    } finally {
      upload.release();
    }
  };
}

/**
 * Half of what may wait is for batches, so that they never keep out who sends alone, and half of
 * that for one tenant, so that it never keeps out the others' batches.
 */
function roomOf({ maxQueuedAdmissions }: EngineContext): Room {
  const batches = Math.floor(maxQueuedAdmissions / 2);
  return { admissions: maxQueuedAdmissions, batches, own: Math.floor(batches / 2) };
}

async function accept(
  ctx: EngineContext,
  { tenantNo, keyNo }: Caller,
  batch: ReadBatch,
  about: { requestId: string; idempotencyKey: string | null },
  room: Room,
  commits: TenantLimiter,
): Promise<{ batchId: string; isRepeat: boolean }> {
  const { total, itemsHash, items } = batch;
  const wrong = new Map(batch.problems);
  for (const [index, problem] of await missingParents(ctx.tenantSql, tenantNo, items)) {
    wrong.set(index, problem);
  }
  const accepted: BatchItem[] = [];
  for (const [index, item] of items) if (!wrong.has(index)) accepted.push({ index, ...item });
  const batchHex = newUuidHex();
  const intake = {
    ...about,
    batchId: `batch_${batchHex}`,
    tenantNo,
    keyNo,
    itemsHash,
    total,
    items: accepted,
    problems: new Map([...wrong].map(([index, problem]) => [index, stored(problem)])),
    salts: randomBytes(total * 32),
  };
  const outcome = await commits
    .run(tenantNo, () => acceptBatch(ctx.sql, intake, room))
    .catch((error: unknown) => {
      throw error instanceof TenantBusyError ? tooManyBatches(error) : error;
    });
  switch (outcome.outcome) {
    case 'idempotency_conflict':
      throw idempotencyConflict();
    case 'no_room':
      throw tooDeep();
    case 'repeat':
      ctx.metrics?.admissions('batch', 'replayed', total);
      return { batchId: outcome.batchId, isRepeat: true };
    case 'accepted':
      ctx.metrics?.admissions('batch', 'accepted', accepted.length);
      ctx.metrics?.admissions('batch', 'refused', wrong.size);
      if (outcome.awaited > 0) void wakeWorkers(ctx, batchHex, about.requestId);
      return { batchId: outcome.batchId, isRepeat: false };
  }
}

/** What is kept of a problem is what is not the same for all of its code. */
function stored({ code, message: detail, options: { errors } }: Problem): string {
  return JSON.stringify({ code, detail, ...(errors && { errors }) });
}

/** A queue that is away costs time, never a batch: workers look for what waits. */
async function wakeWorkers(ctx: EngineContext, batchHex: string, requestId: string): Promise<void> {
  try {
    await ctx.queue.addBatches([batchHex], [requestId]);
  } catch (error) {
    ctx.log.warn({ err: error, request_id: requestId }, 'the queue cannot be reached');
  }
}
