import type { Request, Response } from 'express';
import * as z from 'zod';
import { canonicalBytes } from '#protocol/canonical-json';
import { actionSchema, effectSchema, textSchema, timeSchema } from '#protocol/schemas/primitives';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofListSchema, type ListedProof, type ProofList } from '#protocol/schemas/proof-list';
import { canAssertValidity } from '#protocol/status';
import { formatTime, parseTime } from '#protocol/time';
import { listProofs, statusOf, type ProofInList } from '#sql/proofs/list';
import { formatCursor, parseCursor, type CursorList } from '../http/cursor.js';
import { authorize } from '../http/authorize.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { parseQuery } from '../http/paging.js';
import { Problem } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';

const LANES = { execute: 1, agent: 2 } as const;
const DEFAULT_PAGE = 50;

/** What a proof itself can be; certificate, passport and trust have statuses of their own. */
const LISTED_STATUSES = ['VALID', 'REVOKED', 'EXPIRED', 'BACKEND_LOOKUP_REQUIRED'] as const;

const querySchema = z.strictObject({
  limit: z
    .string()
    .regex(/^(?:[1-9][0-9]?|1[0-9][0-9]|200)$/, 'expected 1 to 200')
    .meta({ description: 'The most proofs in one page, 1 to 200; 50 when absent.' })
    .exactOptional(),
  cursor: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected the next_cursor of a page')
    .meta({
      description:
        '`next_cursor` of the page before, as it is. It holds for the same tenant and the same filters.',
    })
    .exactOptional(),
  action: actionSchema
    .meta({ description: 'Exactly this action. Outcomes have none and are left out.' })
    .exactOptional(),
  status: z
    .enum(LISTED_STATUSES, `expected one of ${LISTED_STATUSES.join(', ')}`)
    .meta({
      description:
        'Status of the proof itself at the time of asking. `BACKEND_LOOKUP_REQUIRED`: not verified yet, or no longer verifying.',
    })
    .exactOptional(),
  effect: effectSchema.meta({ description: 'What was decided.' }).exactOptional(),
  lane: z
    .enum(['execute', 'agent'], 'expected execute or agent')
    .meta({
      description:
        'Where it was admitted: `POST /v1/intents/execute` or `POST /v1/agent/admissions`.',
    })
    .exactOptional(),
  intent_id: textSchema
    .meta({ description: 'Exactly this `intent_id`. The agent lane has none.' })
    .exactOptional(),
  from: timeSchema.meta({ description: 'Accepted at this time or later.' }).exactOptional(),
  to: timeSchema.meta({ description: 'Accepted before this time.' }).exactOptional(),
});
type ListProofsQuery = z.infer<typeof querySchema>;

const spec: OperationSpec = {
  id: 'listProofs',
  method: 'get',
  path: '/v1/proofs',
  tag: 'Proofs',
  summary: "List the tenant's proofs",
  description:
    'The newest first, in the order of the log. Proofs that are appended while a client reads page after page change none of the pages that it has yet to read. Filters are joined by "and". One request looks at a bounded part of the registry, so a page under a rare filter may be short, or empty, while `next_cursor` says that there is more.',
  scopes: ['read'],
  query: querySchema,
  produces: ['application/json'],
  responses: {
    200: {
      description: 'One page of the list.',
      content: { 'application/json': proofListSchema },
    },
  },
  problems: ['invalid_query'],
};

export const listProofsOperation: Operation = { spec, handler: list };

function list(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const query = parseQuery(querySchema, req);
    const { cursor, limit, ...filters } = query;
    const cursors: CursorList = { list: 'proofs', tenantNo: caller.tenantNo, filters };
    const { proofs, next } = await deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
      listProofs(sql, {
        tenantNo: caller.tenantNo,
        filter: filterOf(query),
        below: cursor === undefined ? null : placeOf(cursors, cursor),
        limit: limit === undefined ? DEFAULT_PAGE : Number(limit),
        status: query.status,
      }),
    );
    const page: ProofList = {
      schema_version: SCHEMA.proofList,
      proofs: proofs.map(listed),
      next_cursor: next === null ? null : formatCursor(cursors, String(next)),
    };
    sendJson(res, 200, canonicalBytes(page));
  };
}

function filterOf({ lane, effect, action, intent_id, from, to }: ListProofsQuery) {
  return {
    lane: lane === undefined ? undefined : LANES[lane],
    effect,
    action,
    intentId: intent_id,
    acceptedFrom: from === undefined ? undefined : parseTime(from),
    acceptedBefore: to === undefined ? undefined : parseTime(to),
  };
}

function placeOf(cursors: CursorList, cursor: string): number {
  const place = parseCursor(cursors, cursor);
  if (place === null || !/^[0-9]{1,15}$/.test(place)) {
    throw new Problem(
      'invalid_query',
      'The parameter "cursor" is refused: it is not of this list. Send next_cursor as it was, with the same filters.',
    );
  }
  return Number(place);
}

function listed(proof: ProofInList): ListedProof {
  const status = statusOf(proof);
  return {
    proof_id: proof.proofId,
    leaf_index: proof.leafIndex,
    environment: proof.environment,
    lane: proof.lane === LANES.execute ? 'execute' : 'agent',
    effect: proof.effect,
    action: proof.action,
    intent_id: proof.intentId,
    accepted_at: formatTime(proof.acceptedAt),
    verification_status: status,
    can_assert_validity: canAssertValidity(status),
  };
}
