import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes, type JsonValue } from '#protocol/json';
import { BATCH_ID_PATTERN, isBatchId } from '#protocol/ids';
import {
  batchListSchema,
  batchResultsSchema,
  batchSchema,
  type Batch as BatchDocument,
  type BatchResult,
} from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProblemDocument } from '#protocol/schemas/problem';
import { formatTime } from '#protocol/time';
import { pacedLimiter } from '#runtime/concurrency';
import { policyAnnotations } from '#sql/admissions/policies';
import {
  batchOutcomes,
  listBatches,
  readBatch,
  type Batch,
  type ItemOutcome,
} from '#sql/batches/read';
import { approvalRequired, receiptOrProblem, type Sentences } from '../admission/outcome.js';
import { Problem, type ProblemCode } from '../http/problem.js';
import {
  cursorSchema,
  formatCursor,
  parseQuery,
  listOperation,
  requirePosition,
} from '../http/paging.js';
import { arrayParts, sendBytes, sendJson, sendLines } from '../http/respond.js';
import { json, type Call } from '../operation.js';
import { tenantOperation } from '../http/request.js';
import { JSON_LINES } from './parse-batch.js';

export const listBatchesOperation = listOperation(
  {
    id: 'listBatches',
    path: '/v1/batches',
    tag: 'Admission',
    summary: 'List batches',
    description: 'Lists batches, newest first.',
    scopes: ['admit', 'read'],
    page: json('A page of batches.', batchListSchema),
  },
  {
    name: 'batches',
    version: SCHEMA.batchList,
    documentOf: batchDocument,
    id: BATCH_ID_PATTERN,
    placeOf: ({ acceptedAt, batchId }) => ({ createdAt: acceptedAt, id: batchId }),
    read: listBatches,
  },
);

export const readBatchOperation = tenantOperation(
  {
    id: 'readBatch',
    method: 'get',
    path: '/v1/batches/{batch_id}',
    tag: 'Admission',
    summary: 'Retrieve a batch',
    description: 'This request is cheap for a batch of any size: poll as often as needed.',
    scopes: ['admit', 'read'],
    responses: { 200: json('Counts and state of the batch.', batchSchema) },
    problems: ['batch_not_found'],
  },
  async (call) => sendJson(call.res, 200, batchDocument(await requireBatch(call))),
);

async function requireBatch({ inTenant, req }: Call): Promise<Batch> {
  const batchId = String(req.params['batch_id']);
  const batch = isBatchId(batchId) ? await inTenant(readBatch, batchId) : null;
  if (batch === null) throw new Problem('batch_not_found');
  return batch;
}

export function batchDocument(batch: Batch): BatchDocument {
  const { total, admitted, denied, refused, invalid, pending } = batch;
  const approval_required = batch.approvalRequired;
  return {
    schema_version: SCHEMA.batch,
    batch_id: batch.batchId,
    state: batch.completedAt === null ? 'processing' : 'completed',
    counts: { total, admitted, denied, approval_required, refused, invalid, pending },
    replayed: batch.replayed,
    rate: Math.round((batch.settled * 10_000) / Math.max(1, batch.elapsedMs)) / 10,
    accepted_at: formatTime(batch.acceptedAt),
    completed_at: batch.completedAt === null ? null : formatTime(batch.completedAt),
  };
}

const DEFAULT_PAGE = 100;
/** Number of items that are read at a time, which bounds memory for any `limit`. */
const AT_A_TIME = 250;
/** A page, or a chunk of a stream, ends at this size: 250 denials can have 32 MB, if an overlay has long sentences. */
const PART_BYTES = 2 * 1024 * 1024;

/** Lets a tenant read one page at a time: reading all results of a batch keeps a core busy for half a second. */
const parts = pacedLimiter({ total: 4, perOwner: 1, maxWaiting: 10_000, timeoutMs: 60_000 });

const querySchema = z.strictObject({
  limit: z
    .string()
    .regex(/^(?:[1-9][0-9]{0,2}|1000)$/, 'expected 1 to 1000')
    .describe(
      'Maximum number of items in the response. Default: 100 for JSON, all items for NDJSON.',
    )
    .exactOptional(),
  cursor: cursorSchema.describe('`next_cursor` of the previous page, unchanged.').exactOptional(),
});

export const batchResultsOperation = tenantOperation(
  {
    id: 'batchResults',
    method: 'get',
    path: '/v1/batches/{batch_id}/results',
    tag: 'Admission',
    summary: 'List batch results',
    description:
      'Results are in the order of the items. Each has the status that a single request for the item would have, with its receipt or its problem. Items that are not decided yet are `pending`. An item that requires an approval stays `approval_required`: `GET /v1/admissions/{proof_id}` returns its second decision. `application/json` returns a page; `application/x-ndjson` returns all results, one `BatchResult` per line.',
    scopes: ['admit', 'read'],
    query: querySchema,
    produces: ['application/json', JSON_LINES],
    responses: {
      200: {
        description: 'A page of results as JSON, or all results as NDJSON.',
        content: { 'application/json': batchResultsSchema, [JSON_LINES]: 'text' },
      },
    },
    problems: ['invalid_query', 'batch_not_found'],
  },
  sendResults,
);

async function sendResults(call: Call): Promise<void> {
  const { caller, req, res, type } = call;
  const { limit, cursor } = parseQuery(querySchema, req);
  const batch = await requireBatch(call);
  const list = {
    list: 'batch_results',
    tenantId: caller.tenantId,
    filters: { batch_id: batch.batchId },
  };
  const isIndex = (position: string): boolean => /^[0-9]{1,5}$/.test(position);
  const from = cursor === undefined ? 0 : Number(requirePosition(list, cursor, isIndex));
  res.vary('Accept');
  if (type === JSON_LINES) {
    res.setHeader('Content-Type', JSON_LINES);
    const until = limit === undefined ? batch.total : from + Number(limit);
    await sendLines(res, readResults(call, batch, from, until));
    return;
  }
  const until = from + Number(limit ?? DEFAULT_PAGE);
  const found: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of readResults(call, batch, from, until)) {
    found.push(...part);
    for (const { length } of part) bytes += length;
    if (bytes >= PART_BYTES) break;
  }
  const end = bytes >= PART_BYTES ? from + found.length : until;
  const next = end < batch.total ? formatCursor(list, String(end)) : null;
  sendBytes(res, 200, 'application/json', pageBytes(batch, found, next));
}

async function* readResults(
  { caller, ctx, inTenant }: Call,
  { batchId, total }: Batch,
  from: number,
  until: number,
): AsyncGenerator<Uint8Array[], void> {
  const end = Math.min(until, total);
  const known = new Map<string, ReturnType<Sentences>>();
  // Reads the sentences of each policy set once.
  const sentences: Sentences = (digest) => {
    const name = digest.toString('hex');
    const found = known.get(name) ?? policyAnnotations(ctx.sql, caller.tenantNo, digest);
    known.set(name, found);
    return found;
  };
  const readPart = async (start: number): Promise<Uint8Array[]> => {
    const most = Math.min(AT_A_TIME, end - start);
    const found = await inTenant(batchOutcomes, batchId, start, most);
    const part: Uint8Array[] = [];
    let bytes = 0;
    for (const item of found?.items ?? []) {
      const document = await resultOf(item, found!.requestId, sentences);
      const result = canonicalBytes(document as unknown as JsonValue);
      part.push(result);
      bytes += result.length;
      if (bytes >= PART_BYTES) break;
    }
    return part;
  };
  for (let start = from; start < end;) {
    const part = await parts(caller.tenantNo, () => readPart(start));
    if (part.length === 0) return;
    yield part;
    start += part.length;
  }
}

async function resultOf(
  item: ItemOutcome,
  requestId: string,
  sentences: Sentences,
): Promise<BatchResult> {
  const { index } = item;
  const failed = (state: BatchResult['state'], problem: Problem): BatchResult => {
    const document = { ...problem.document(requestId), index } as unknown as ProblemDocument;
    return { index, state, status: problem.status, problem: document };
  };
  if (item.state === 'invalid') {
    const { code, detail, errors } = item.problem;
    const options = errors === undefined ? {} : { errors };
    return failed('invalid', new Problem(code as ProblemCode, detail, options));
  }
  if (item.state === 'erased') return failed('erased', new Problem('payload_erased'));
  const { proofId, outcome } = item;
  const own = { proof_id: proofId, ...(item.replayed && { replayed: true as const }) };
  if (outcome === null) return { index, state: 'pending', status: 202, ...own };
  if (outcome.state === 'proved' && outcome.effect === 'REQUIRE_APPROVAL') {
    return { index, status: 202, ...own, ...(await approvalRequired(outcome, sentences)) };
  }
  const result = await receiptOrProblem(outcome, sentences);
  if (!(result instanceof Problem)) {
    return { index, state: 'admitted', status: 200, ...own, receipt: result };
  }
  const state = outcome.state === 'proved' ? 'denied' : outcome.state;
  return { ...failed(state, result), ...own };
}

/** The page as canonical JSON: its members are in order, and its items are canonical already. */
function pageBytes({ batchId }: Batch, found: Uint8Array[], next: string | null): Uint8Array {
  const head = `{"batch_id":"${batchId}","next_cursor":${JSON.stringify(next)},"results":`;
  const tail = `,"schema_version":"${SCHEMA.batchResults}"}`;
  return Buffer.concat([utf8(head), ...arrayParts(found), utf8(tail)]);
}
