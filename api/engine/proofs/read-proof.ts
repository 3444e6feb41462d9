import * as z from 'zod';
import { eventsOf } from '#protocol/history';
import { canonicalBytes } from '#protocol/json';
import { batchIdSchema } from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  actionSchema,
  effectSchema,
  proofIdSchema,
  runIdSchema,
  textSchema,
  timeSchema,
} from '#protocol/schemas/primitives';
import {
  proofViewSchema,
  type ProofView,
  proofListSchema,
  type ListedProof,
  type ProofList,
} from '#protocol/schemas/proof-view';
import { canAssertValidity } from '#protocol/status';
import { formatTime, parseTime } from '#protocol/time';
import { runKeyOf } from '#sql/admissions/references';
import { listedStatus, listProofs, type ProofInList } from '#sql/proofs/list';
import { proofHistory, type ProofHistory, type StoredProof } from '#sql/proofs/read';
import { limitSlowRead, tenantOperation } from '../http/request.js';
import {
  cursorSchema,
  formatCursor,
  limitSchema,
  parseQuery,
  requirePosition,
} from '../http/paging.js';
import { addLogFields, sendRevalidatable, sendJson } from '../http/respond.js';
import { revalidated } from '../../openapi/types.js';
import { json, type Call } from '../operation.js';
import { statementOf, documentsOf, findProof } from './stored-proof.js';

export const readProofOperation = tenantOperation(
  {
    id: 'readProof',
    method: 'get',
    path: '/v1/proofs/{proof_id}',
    tag: 'Proofs',
    summary: 'Retrieve a proof',
    scopes: ['read'],
    responses: revalidated(
      json(
        'The proof record with its AEP, receipt and log entry, its current verdict and its status history.',
        proofViewSchema,
      ),
    ),
    problems: ['proof_not_found', 'integrity_failure'],
  },
  async ({ inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const [stored, history] = await inTenant(async (sql, tenantNo) => {
      const found = await findProof(sql, tenantNo, proofId);
      return [found, await proofHistory(sql, found)] as const;
    });
    addLogFields(res, { proof_id: stored.proofId });
    sendRevalidatable(req, res, 'application/json', canonicalBytes(viewOf(stored, history)));
  },
);

function viewOf(stored: StoredProof, history: ProofHistory): ProofView {
  const { entry, payload } = documentsOf(stored);
  return {
    schema_version: SCHEMA.proofView,
    proof_id: stored.proofId,
    effect: stored.effect,
    environment: stored.environment,
    leaf_index: stored.leafIndex,
    log_entry: entry,
    receipt: payload?.receipt ?? null,
    aep: payload?.aep ?? null,
    proof_record: payload?.record ?? null,
    verdict: statementOf(stored, history),
    history: eventsOf(stored, history),
    children: `/v1/proofs?parent=${stored.proofId}`,
  };
}

const LANES = { execute: 1, agent: 2 } as const;
const DEFAULT_PAGE = 50;

/** Statuses of the proof itself. Certificate, passport and trust have other statuses. */
const LISTED_STATUSES = ['VALID', 'REVOKED', 'EXPIRED', 'BACKEND_LOOKUP_REQUIRED'] as const;

const querySchema = z
  .strictObject({
    limit: limitSchema.describe('Maximum number of proofs in a page. Default: 50.').exactOptional(),
    cursor: cursorSchema
      .describe(
        '`next_cursor` of the previous page, unchanged. It is valid for the same tenant and filters.',
      )
      .exactOptional(),
    action: actionSchema
      .describe(
        'Proofs with exactly this action. A proof of an outcome or of a `close` has no action and never matches.',
      )
      .exactOptional(),
    status: z
      .enum(LISTED_STATUSES, `expected one of ${LISTED_STATUSES.join(', ')}`)
      .describe(
        'Current status of the proof itself. `BACKEND_LOOKUP_REQUIRED`: not verified yet, or no longer verified.',
      )
      .exactOptional(),
    effect: effectSchema.describe('Effect of the decision.').exactOptional(),
    lane: z
      .enum(['execute', 'agent'], 'expected execute or agent')
      .describe('Request type: `POST /v1/intents/execute` or `POST /v1/agent/admissions`.')
      .exactOptional(),
    intent_id: textSchema
      .describe('Proofs with exactly this `intent_id`. Agent admissions have none.')
      .exactOptional(),
    agent: textSchema.describe('Proofs of requests of this agent id.').exactOptional(),
    tool: textSchema.describe('Proofs of admissions with exactly this tool.').exactOptional(),
    run: runIdSchema.describe('Proofs of this run of `agent`; requires `agent`.').exactOptional(),
    parent: proofIdSchema
      .describe('Proofs that name this proof as their parent, such as its outcomes.')
      .exactOptional(),
    batch: batchIdSchema.describe('Proofs of the items of this batch.').exactOptional(),
    bound: z
      .enum(['true', 'false'], 'expected true or false')
      .describe('Whether the API key was restricted to the agent. Erased proofs never match.')
      .exactOptional(),
    from: timeSchema.describe('Accepted at this time or later.').exactOptional(),
    to: timeSchema.describe('Accepted before this time.').exactOptional(),
  })
  .refine(({ agent, run }) => run === undefined || agent !== undefined, {
    path: ['run'],
    message: 'requires agent, because a run belongs to one agent',
  });
type ListProofsQuery = z.infer<typeof querySchema>;

export const listProofsOperation = tenantOperation(
  {
    id: 'listProofs',
    method: 'get',
    path: '/v1/proofs',
    tag: 'Proofs',
    summary: 'List proofs',
    description:
      'Lists proofs in log order, newest first. Proofs appended while a client reads pages do not change the remaining pages. Filters combine with "and". One request scans a bounded part of the registry: with a rare filter, a page may be short or empty although `next_cursor` is not null.',
    scopes: ['read'],
    query: querySchema,
    responses: { 200: json('One page of the list.', proofListSchema) },
    problems: ['invalid_query'],
  },
  listProofsPage,
);

function listProofsPage(call: Call): Promise<void> {
  const query = parseQuery(querySchema, call.req);
  const page = () => sendPage(call, query);
  return query.run === undefined && query.batch === undefined
    ? page()
    : limitSlowRead(call.caller, page);
}

async function sendPage({ caller, inTenant, res }: Call, query: ListProofsQuery): Promise<void> {
  const { cursor, limit, ...filters } = query;
  const list = { list: 'proofs', tenantId: caller.tenantId, filters };
  const isIndex = (position: string): boolean => /^[0-9]{1,15}$/.test(position);
  const below = cursor === undefined ? null : Number(requirePosition(list, cursor, isIndex));
  const { proofs, next } = await inTenant((sql, tenantNo) =>
    listProofs(sql, {
      tenantNo,
      filter: filterOf(query),
      below,
      limit: Number(limit ?? DEFAULT_PAGE),
      status: query.status,
    }),
  );
  const page: ProofList = {
    schema_version: SCHEMA.proofList,
    proofs: proofs.map(listed),
    next_cursor: next === null ? null : formatCursor(list, String(next)),
  };
  sendJson(res, 200, page);
}

function filterOf({ agent, batch, bound, from, lane, run, to, ...query }: ListProofsQuery) {
  return {
    agent,
    tool: query.tool,
    parent: query.parent,
    runKey: agent === undefined || run === undefined ? undefined : runKeyOf(agent, run),
    batch: batch?.slice('batch_'.length),
    bound: bound === undefined ? undefined : bound === 'true',
    lane: lane === undefined ? undefined : LANES[lane],
    effect: query.effect,
    action: query.action,
    intentId: query.intent_id,
    acceptedFrom: from === undefined ? undefined : parseTime(from),
    acceptedBefore: to === undefined ? undefined : parseTime(to),
  };
}

function listed(proof: ProofInList): ListedProof {
  const status = listedStatus(proof);
  return {
    proof_id: proof.proofId,
    leaf_index: proof.leafIndex,
    environment: proof.environment,
    lane: proof.lane === LANES.execute ? 'execute' : 'agent',
    effect: proof.effect,
    action: proof.action,
    intent_id: proof.intentId,
    agent: proof.agent?.id ?? null,
    tool: proof.tool ?? null,
    run: proof.run ?? null,
    parent_proof_id: proof.parent,
    bound: proof.lane === LANES.agent ? proof.bound : null,
    batch_id: proof.batchId,
    accepted_at: formatTime(proof.acceptedAt),
    verification_status: status,
    can_assert_validity: canAssertValidity(status),
  };
}
