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

/** Statuses of the proof itself. Certificate, passport and trust have other statuses. */
const LISTED_STATUSES = ['VALID', 'REVOKED', 'EXPIRED', 'BACKEND_LOOKUP_REQUIRED'] as const;

const querySchema = z.strictObject({
  limit: z
    .string()
    .regex(/^(?:[1-9][0-9]?|1[0-9][0-9]|200)$/, 'expected 1 to 200')
    .meta({ description: 'Maximum number of proofs in a page, 1 to 200. Default: 50.' })
    .exactOptional(),
  cursor: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected the next_cursor of a page')
    .meta({
      description:
        '`next_cursor` of the previous page, unchanged. It is valid for the same tenant and filters.',
    })
    .exactOptional(),
  action: actionSchema
    .meta({
      description: 'Proofs with exactly this action. Outcomes have no action and never match.',
    })
    .exactOptional(),
  status: z
    .enum(LISTED_STATUSES, `expected one of ${LISTED_STATUSES.join(', ')}`)
    .meta({
      description:
        'Current status of the proof itself. `BACKEND_LOOKUP_REQUIRED`: not verified yet, or verification failed.',
    })
    .exactOptional(),
  effect: effectSchema.meta({ description: 'The decision.' }).exactOptional(),
  lane: z
    .enum(['execute', 'agent'], 'expected execute or agent')
    .meta({
      description: 'Request type: `POST /v1/intents/execute` or `POST /v1/agent/admissions`.',
    })
    .exactOptional(),
  intent_id: textSchema
    .meta({ description: 'Proofs with exactly this `intent_id`. Agent admissions have none.' })
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
  summary: 'List proofs',
  description:
    'Newest first, in log order. Proofs appended while a client reads pages do not change the remaining pages. Filters combine with "and". One request scans a bounded part of the registry: with a rare filter, a page may be short or empty although `next_cursor` is not null.',
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
        below: cursor === undefined ? null : positionOf(cursors, cursor),
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

function positionOf(cursors: CursorList, cursor: string): number {
  const position = parseCursor(cursors, cursor);
  if (position === null || !/^[0-9]{1,15}$/.test(position)) {
    throw new Problem(
      'invalid_query',
      'The parameter "cursor" does not belong to this list. Send next_cursor unchanged, with the same filters.',
    );
  }
  return Number(position);
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
