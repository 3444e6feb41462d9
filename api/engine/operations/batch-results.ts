import type { Request, Response } from 'express';
import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { batchResultsSchema } from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import { batchOutcomes, type Batch } from '#sql/batches/read';
import { policyAnnotations } from '#sql/admissions/policies';
import { requireBatch, resultBytes, resultOf, type Sentences } from '../batches/documents.js';
import { JSON_LINES } from '../batches/read-batch.js';
import { sendLines } from '../batches/send-lines.js';
import type { EngineContext } from '../context.js';
import { formatCursor, parseCursor, type CursorList } from '../http/cursor.js';
import { authorize } from '../http/authorize.js';
import { parseQuery } from '../http/paging.js';
import { Problem } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';

const DEFAULT_PAGE = 100;
const LARGEST_PAGE = 1_000;
/** Items read and rendered at a time, which bounds memory for any `limit`. */
const AT_A_TIME = 250;

const querySchema = z.strictObject({
  limit: z
    .string()
    .regex(/^(?:[1-9][0-9]{0,2}|1000)$/, 'expected 1 to 1000')
    .meta({
      description:
        'Maximum number of items in the response, 1 to 1000. Default: 100 for JSON, all items for lines.',
    })
    .exactOptional(),
  cursor: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected the next_cursor of a page')
    .meta({ description: '`next_cursor` of the previous page, unchanged.' })
    .exactOptional(),
});

const spec: OperationSpec = {
  id: 'batchResults',
  method: 'get',
  path: '/v1/batches/{batch_id}/results',
  tag: 'Admission',
  summary: 'List batch results',
  description:
    'Results are in the order of the items. Each has the status that a single request for the item would have, with its receipt or its problem. Items that are not decided yet are `pending`. `application/json` returns a page; `application/x-ndjson` returns all results, one `BatchResult` per line.',
  scopes: ['admit', 'read'],
  query: querySchema,
  produces: ['application/json', JSON_LINES],
  responses: {
    200: {
      description: 'A page of results as JSON, or all results as lines.',
      content: { 'application/json': batchResultsSchema, [JSON_LINES]: 'text' },
    },
  },
  problems: ['invalid_query', 'batch_not_found'],
};

export const batchResultsOperation: Operation = { spec, handler: results };

function results(deps: EngineDeps) {
  const { ctx } = deps;
  return async (req: Request, res: Response): Promise<void> => {
    const { caller, type } = await authorize(deps, spec, req, res);
    const { limit, cursor } = parseQuery(querySchema, req);
    const batch = await requireBatch(ctx, caller, req.params['batch_id']);
    const cursors: CursorList = {
      list: 'batch_results',
      tenantNo: caller.tenantNo,
      filters: { batch_id: batch.batchId },
    };
    const from = cursor === undefined ? 0 : positionOf(cursors, cursor);
    const most = limit === undefined ? null : Number(limit);
    res.vary('Accept');
    const read = (until: number) => outcomesOf(ctx, caller.tenantNo, batch, from, until);
    if (type === JSON_LINES) {
      res.setHeader('Content-Type', JSON_LINES);
      await sendLines(res, read(most === null ? batch.total : from + most));
      return;
    }
    const until = from + Math.min(most ?? DEFAULT_PAGE, LARGEST_PAGE);
    const found: Uint8Array[] = [];
    for await (const part of read(until)) found.push(...part);
    const next = until < batch.total ? formatCursor(cursors, String(until)) : null;
    sendJson(res, 200, pageBytes(batch, found, next));
  };
}

function positionOf(cursors: CursorList, cursor: string): number {
  const position = parseCursor(cursors, cursor);
  if (position === null || !/^[0-9]{1,5}$/.test(position)) {
    throw new Problem(
      'invalid_query',
      'The parameter "cursor" does not belong to these results. Send next_cursor unchanged.',
    );
  }
  return Number(position);
}

/** Yields the results in [from, until) in small groups, so that memory stays bounded. */
async function* outcomesOf(
  ctx: EngineContext,
  tenantNo: number,
  { batchId, total }: Batch,
  from: number,
  until: number,
): AsyncGenerator<Uint8Array[], void> {
  const sentences = sentencesOf(ctx);
  const end = Math.min(until, total);
  for (let start = from; start < end; start += AT_A_TIME) {
    const most = Math.min(AT_A_TIME, end - start);
    const found = await ctx.tenantSql.run(tenantNo, (sql) =>
      batchOutcomes(sql, tenantNo, batchId, start, most),
    );
    if (found === null) return;
    const part: Uint8Array[] = [];
    for (const item of found.items) {
      part.push(resultBytes(await resultOf(item, found.requestId, sentences)));
    }
    yield part;
  }
}

/** Caches the sentences by policy set: one query per set. */
function sentencesOf({ sql }: EngineContext): Sentences {
  const known = new Map<string, ReturnType<Sentences>>();
  return (digest) => {
    const name = digest.toString('hex');
    const found = known.get(name) ?? policyAnnotations(sql, digest);
    known.set(name, found);
    return found;
  };
}

const COMMA = utf8(',');

/** Canonical JSON: members in order, around items that are canonical already. */
function pageBytes({ batchId }: Batch, found: Uint8Array[], next: string | null): Uint8Array {
  const head = `{"batch_id":"${batchId}","next_cursor":${JSON.stringify(next)},"results":[`;
  const items = found.flatMap((item, at) => (at === 0 ? [item] : [COMMA, item]));
  const tail = `],"schema_version":"${SCHEMA.batchResults}"}`;
  return Buffer.concat([utf8(head), ...items, utf8(tail)]);
}
