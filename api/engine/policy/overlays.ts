import * as z from 'zod';
import { coverageOf, type PolicyCase, policyCaseSchema, whyNotCovered } from '#policy/cases';
import { combine, documentOf, overlayProblems, rulesOf } from '#policy/overlays';
import { toHex } from '#protocol/bytes';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  overlaySchema,
  overlayListSchema,
  overlayRequestSchema,
  overlayTestSchema,
} from '#protocol/schemas/overlays';
import { HASH_PATTERN, timeSchema } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import {
  activateOverlay,
  listOverlays,
  type OverlayRow,
  policiesInUse,
  storeOverlay,
} from '#sql/admissions/overlays';
import { activePolicy, readPolicySet, type StoredPolicySet } from '#sql/admissions/policies';
import type { Pool } from '#sql/db/transaction';
import type { EngineContext } from '../context.js';
import { documentOperation, tenantOperation } from '../http/request.js';
import { listOperation } from '../http/paging.js';
import { at, Problem } from '../http/problem.js';
import { sendJson } from '../http/respond.js';
import { type Call, json } from '../operation.js';
import {
  limitEvaluation,
  MOST_SIMULATED,
  opened,
  requireFit,
  runCases,
  simulated,
} from './overlay-evaluation.js';

const MOST_CASES = 256;
const MOST_OVERLAYS = 500;
const ATTEMPTS = 3;

const casesSchema = z.array(policyCaseSchema).min(1).max(MOST_CASES);

const testRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.overlayTestRequest),
  cases: casesSchema.exactOptional(),
  since: timeSchema.exactOptional(),
});

const activationSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.overlayActivation),
  cases: casesSchema,
});

const RULE = `@sentence("Deletions are made by hand.")
forbid (principal, action, resource == Svc::Operation::"DELETE_RECORD");`;

const CASES = [
  {
    name: 'a deletion is denied',
    input: {
      tenant: 'demo',
      environment: 'sandbox',
      lane: 'agent',
      action: 'DELETE_RECORD',
      agent: { id: 'booking-agent-7' },
    },
    expect: 'DENY',
    reasons: ['overlay.no-deletions'],
  },
];

const POST = { method: 'post', tag: 'Policies', scopes: ['policy'] } as const;

export const storeOverlayOperation = documentOperation(
  {
    ...POST,
    id: 'storeOverlay',
    path: '/v1/overlays',
    summary: 'Store an overlay',
    description:
      'Stores rules of your tenant on top of the policy set of the operator. A rule is one Cedar `forbid` ' +
      'that is valid under the set in force. An overlay decides nothing until it is activated. Its id is a hash of its ' +
      'rules: storing it again changes nothing.',
    body: {
      schema: overlayRequestSchema,
      examples: {
        deletions: { schema_version: SCHEMA.overlayRequest, rules: { 'no-deletions': RULE } },
      },
    },
    responses: { 201: json('The overlay, stored now or before.', overlaySchema) },
    problems: ['invalid_overlay', 'too_many_overlays', 'policy_missing'],
  },
  async (call, { rules }) => {
    const { caller, ctx, res } = call;
    requireFit(
      await limitEvaluation(caller, async () => overlayProblems(await setInForce(ctx), rules)),
    );
    const document = documentOf(rules);
    const stored = await changed(
      call,
      document.digest,
      storeOverlay,
      caller.keyNo,
      document,
      MOST_OVERLAYS,
    );
    if (stored === null) throw new Problem('unauthenticated');
    if (stored === false) throw new Problem('too_many_overlays');
    sendJson(res, 201, overlayDocument(stored));
  },
);

const membersOf = (overlay: OverlayRow) => ({
  overlay_id: toHex(overlay.digest),
  rules: rulesOf(overlay),
  active: overlay.isActive,
  unfit_rules: overlay.unfit,
  created_at: formatTime(overlay.createdAt.getTime()),
});

const overlayDocument = (overlay: OverlayRow) => ({
  schema_version: SCHEMA.overlay,
  ...membersOf(overlay),
});

export const listOverlaysOperation = listOperation(
  {
    id: 'listOverlays',
    path: '/v1/overlays',
    tag: 'Policies',
    summary: 'List overlays',
    description:
      'Lists overlays, newest first. At most one overlay is active. Its `unfit_rules` are the rules that are not valid under ' +
      'the policy set in force, which the operator activated later.',
    scopes: ['policy'],
    page: json('A page of overlays.', overlayListSchema),
  },
  {
    name: 'overlays',
    version: SCHEMA.overlayList,
    documentOf: membersOf,
    id: HASH_PATTERN,
    placeOf: ({ createdAt, digest }) => ({ createdAt: createdAt.getTime(), id: toHex(digest) }),
    read: listOverlays,
  },
);

export const testOverlayOperation = documentOperation(
  {
    ...POST,
    id: 'testOverlay',
    path: '/v1/overlays/{overlay_id}/test',
    summary: 'Test an overlay',
    description:
      'Decides cases with the policy set in force and this overlay, and reports how many each rule decides. ' +
      'With `since`, also evaluates the admissions of your tenant since then, at most the newest ' +
      `${MOST_SIMULATED.toLocaleString('en')}, and lists what would change. Records nothing.`,
    body: {
      schema: testRequestSchema,
      examples: {
        cases: { schema_version: SCHEMA.overlayTestRequest, cases: CASES },
        simulation: {
          schema_version: SCHEMA.overlayTestRequest,
          since: '2026-11-20T00:00:00.000Z',
        },
      },
    },
    responses: { 200: json('The decisions.', overlayTestSchema) },
    problems: ['overlay_not_found', 'invalid_overlay', 'policy_missing'],
  },
  async (call, request) => {
    const { caller, req, res } = call;
    const id = String(req.params['overlay_id']);
    sendJson(res, 200, await limitEvaluation(caller, () => tested(call, id, request)));
  },
);

async function tested(call: Call, id: string, { cases, since }: z.infer<typeof testRequestSchema>) {
  const base = await setInForce(call.ctx);
  const overlay = await overlayOf(call, id);
  const { engine, set } = await opened(base, rulesOf(overlay));
  const results = cases && (await runCases(engine, call.caller, cases));
  return {
    schema_version: SCHEMA.overlayTest,
    overlay_id: toHex(overlay.digest),
    policy_digest: toHex(set.digest),
    cases: results
      ? {
          failed: results.filter(({ passed }) => !passed).length,
          covered: coverageOf(set.policies, results),
          results: results.map((one) => ({ ...one, decided: { ...one.decided } })),
        }
      : null,
    simulation: since === undefined ? null : await simulated(call, engine, since),
  };
}

export const activateOverlayOperation = documentOperation(
  {
    ...POST,
    id: 'activateOverlay',
    path: '/v1/overlays/{overlay_id}/activate',
    summary: 'Activate an overlay',
    description:
      'The overlay decides the admissions of your tenant that are accepted from now on, in place of the ' +
      'overlay that was active. Every case must pass, and each rule must decide a case. When the operator ' +
      'activates another policy set, the overlay continues on top of it; a rule that is not valid under that set ' +
      'denies every action until you activate a corrected overlay.',
    body: {
      schema: activationSchema,
      examples: { activate: { schema_version: SCHEMA.overlayActivation, cases: CASES } },
    },
    responses: { 200: json('The overlay, which is now active.', overlaySchema) },
    problems: ['overlay_not_found', 'invalid_overlay', 'overlay_untested', 'policy_missing'],
  },
  async (call, { cases }) => {
    const { caller, req, res } = call;
    const id = String(req.params['overlay_id']);
    sendJson(
      res,
      200,
      overlayDocument(await limitEvaluation(caller, () => activated(call, id, cases))),
    );
  },
);

async function activated(
  call: Call,
  id: string,
  cases: readonly PolicyCase[],
): Promise<OverlayRow> {
  const { caller, ctx } = call;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const base = await setInForce(ctx);
    const inUse = await policiesInUse(ctx.sql);
    const overlay = await overlayOf(call, id);
    const rules = rulesOf(overlay);
    const { engine, set } = await opened(base, rules);
    const reason = whyNotCovered(set.policies, [], await runCases(engine, caller, cases));
    if (reason !== null) {
      const detail = `The overlay was not activated: ${reason}.`;
      throw new Problem('overlay_untested', detail, at('/cases', reason));
    }
    const sets = [set];
    for (const other of inUse) {
      if (!other.digest.equals(base.digest)) sets.push(await combine(other, rules));
    }
    const active = await changed(
      call,
      overlay.digest,
      activateOverlay,
      caller.keyNo,
      overlay.digest,
      sets,
    );
    if (active === null) throw new Problem('unauthenticated');
    if (active !== false) return active;
  }
  throw new Problem('tenant_busy');
}

export const deactivateOverlayOperation = tenantOperation(
  {
    ...POST,
    id: 'deactivateOverlay',
    path: '/v1/overlays/{overlay_id}/deactivate',
    summary: 'Deactivate an overlay',
    description:
      'The policy set of the operator decides the admissions that are accepted from now on. Changes ' +
      'nothing if the overlay is not active.',
    responses: { 200: json('The overlay, which is not active.', overlaySchema) },
    problems: ['overlay_not_found'],
  },
  async (call) => {
    const { caller, req, res } = call;
    const { digest } = await overlayOf(call, String(req.params['overlay_id']));
    const inactive = await changed(call, digest, activateOverlay, caller.keyNo, digest, null);
    if (!inactive) throw new Problem('unauthenticated');
    sendJson(res, 200, overlayDocument(inactive));
  },
);

async function overlayOf({ inTenant }: Pick<Call, 'inTenant'>, id: string): Promise<OverlayRow> {
  if (!HASH_PATTERN.test(id)) throw new Problem('overlay_not_found');
  return inTenant(readOverlay, Buffer.from(id, 'hex'));
}

async function readOverlay(sql: Pool, tenantNo: number, digest: Buffer): Promise<OverlayRow> {
  const [overlay] = await listOverlays(sql, tenantNo, 1, null, digest);
  if (overlay === undefined) throw new Problem('overlay_not_found');
  return overlay;
}

/**
 * Makes a change, then reads the overlay on the same connection. A wait for a second connection could fail
 * with `tenant_busy`, whose text states that the request changed nothing.
 *
 * @returns the overlay; the result of `change` if nothing was changed
 */
function changed<Args extends unknown[], T extends false | null>(
  { inTenant }: Pick<Call, 'inTenant'>,
  digest: Buffer,
  change: (sql: Pool, tenantNo: number, ...args: Args) => Promise<true | T>,
  ...args: Args
): Promise<OverlayRow | T> {
  return inTenant(async (sql, tenantNo) => {
    const done = await change(sql, tenantNo, ...args);
    return done === true ? readOverlay(sql, tenantNo, digest) : done;
  });
}

async function setInForce({ sql }: Pick<EngineContext, 'sql'>): Promise<StoredPolicySet> {
  const digest = await activePolicy(sql);
  const set = digest && (await readPolicySet(sql, digest));
  if (set !== null) return set;
  throw new Problem(
    'policy_missing',
    'No policy set is active, so the overlay cannot be checked. The operator must activate a policy.',
  );
}
