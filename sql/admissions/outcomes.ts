import { attempt } from '#protocol/errors';
import type { Effect } from '#protocol/status';
import { packRequestIds, type RequestIds, unpackRequestIds } from '#runtime/http/request-ids';
import { arrayOf, slices, unpackIds } from '../db/columns.js';
import {
  type Db,
  type Pool,
  readAsTenants,
  scopeOf,
  type OwnId,
  type Transaction,
} from '../db/transaction.js';
import { APPROVAL_SECONDS, readStoredApproval } from '../proofs/rebuild-aep.js';

export type Outcome =
  | (Pick<OutcomeRow, 'proofId' | 'lane' | 'leafIndex' | 'policyDigest'> & {
      state: 'proved';
      effect: Effect;
      requestHash: Buffer;
      reasons: string[];
      acceptedAt: number;
      approvalSeconds: number;
      /** An approver rejected the pending proof. */
      isRejected?: true;
    })
  | { state: 'refused'; code: string; detail: string }
  /** The admission was decided, and its payload was erased later. */
  | { state: 'erased' };

export interface OutcomeRow {
  proofId: string;
  lane: 1 | 2;
  effect: Effect | null;
  /** Hash of the request; null once the payload is erased. */
  requestHash: Buffer | null;
  leafIndex: number;
  /** The reasons of a denial or of a required approval; otherwise null. */
  reasons: string[] | null;
  policyDigest: Buffer;
  acceptedAt: Date;
  /** Seconds in which the action can be approved; null: `APPROVAL_SECONDS`. */
  approvalSeconds: string | null;
  code: string | null;
  detail: string;
}

/** Columns of an OutcomeRow, from the view `svc.outcome o`. */
export const outcomeColumns = (sql: Db) => sql`
  o.proof_id as "proofId", o.lane, o.effect, o.request_hash as "requestHash",
  o.leaf_index as "leafIndex", o.reasons, o.policy_digest as "policyDigest",
  o.accepted_at as "acceptedAt", o.approval_seconds as "approvalSeconds", o.code, o.detail`;

export function outcomeOf(row: OutcomeRow): Outcome | null {
  const { effect, requestHash, code, detail, ...rest } = row;
  if (effect === null) return code === null ? null : { state: 'refused', code, detail };
  if (requestHash === null) return { state: 'erased' };
  const decided = {
    ...rest,
    reasons: row.reasons ?? [],
    acceptedAt: row.acceptedAt.getTime(),
    approvalSeconds: Number(row.approvalSeconds ?? APPROVAL_SECONDS),
  };
  return { state: 'proved', effect, requestHash, ...decided };
}

/**
 * The outcomes of `admissions` by proof id. A pending proof with a second decision has the outcome
 * of that decision. Pending admissions and admissions of other tenants are absent.
 */
export async function readOutcomes(
  sql: Pool,
  admissions: readonly OwnId[],
): Promise<Map<string, Outcome>> {
  const rows = await readOutcomeRows(sql, admissions);
  const outcomes = new Map(
    rows.flatMap((row): [string, Outcome][] => {
      const outcome = outcomeOf(row);
      return outcome === null ? [] : [[row.proofId, outcome]];
    }),
  );
  const pending = admissions.filter(({ id }) => requiresApproval(outcomes.get(id)));
  for (const [id, second] of await secondDecisions(sql, pending)) outcomes.set(id, second);
  return outcomes;
}

const requiresApproval = (outcome: Outcome | undefined): boolean =>
  outcome?.state === 'proved' && outcome.effect === 'REQUIRE_APPROVAL';

/**
 * The second decisions of pending proofs, by the id of the pending proof; pending proofs without a
 * second decision are absent.
 */
async function secondDecisions(
  sql: Pool,
  pending: readonly OwnId[],
): Promise<Map<string, Outcome>> {
  if (pending.length === 0) return new Map();
  const tenants = pending.map(({ tenantNo }) => tenantNo);
  const rows = await readAsTenants(
    sql,
    tenants,
    (tx) => tx<(OutcomeRow & { approves: string; approval: Buffer | null })[]>`
      select o.approves, i.approval, ${outcomeColumns(tx)}
      from unnest(${pending.map(({ id }) => id)}::uuid[], ${tenants}::int[]) as asked(approves, tenant_no)
      join svc.outcome o using (approves, tenant_no)
      join svc.intake i using (proof_id)
      where not o.refused and o.leaf_index is not null`,
  );
  return new Map(
    rows.flatMap(({ approves, approval, ...row }): [string, Outcome][] => {
      const outcome = outcomeOf(row);
      if (outcome === null) return [];
      const stored = attempt(() => readStoredApproval(approval));
      const isRejected = stored?.envelope.statement.decision === 'reject';
      return [
        [approves, isRejected && outcome.state === 'proved' ? { ...outcome, isRejected } : outcome],
      ];
    }),
  );
}

function readOutcomeRows(sql: Pool, admissions: readonly OwnId[]): Promise<OutcomeRow[]> {
  const ids = arrayOf(admissions.map(({ id }) => id));
  const tenants = admissions.map(({ tenantNo }) => tenantNo);
  return sql<OutcomeRow[]>`
    select ${outcomeColumns(sql)}
    from svc.read_outcomes(${scopeOf(tenants)}, ${ids}::uuid[]) o
    join unnest(${ids}::uuid[], ${arrayOf(tenants)}::integer[]) as asked(proof_id, tenant_no)
      using (proof_id, tenant_no)`;
}

/** The state of one of the tenant's admissions; null when the tenant has no such admission. */
export async function admissionState(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<'pending' | Outcome | null> {
  const asked = { tenantNo, id: proofId };
  const [row] = await readOutcomeRows(sql, [asked]);
  if (row === undefined) return null;
  const outcome = outcomeOf(row);
  if (outcome === null) return 'pending';
  const second = requiresApproval(outcome) ? await secondDecisions(sql, [asked]) : null;
  return second?.get(proofId) ?? outcome;
}

/** The payload of a notification on this channel is a list of ids of admissions or revocations. */
export const OUTCOMES_CHANNEL = 'svc_outcomes';
/** Notifications on this channel announce admissions to the workers; `announcedIn` reads the payload. */
export const PENDING_CHANNEL = 'svc_pending';
/** PostgreSQL limits a payload to 7,999 bytes. */
const IDS_PER_NOTIFICATION = 240;
/**
 * An admission takes at most 172 bytes of a payload: 32 for the proof id, 128 for the request id, 10 for the tenant,
 * and two separators.
 */
const ANNOUNCED_AT_ONCE = 46;
const MOST_PAYLOAD_PER_ID = 6;

/**
 * Announces, when the transaction commits, that it decided admissions or revocations, and names the
 * ids that callers may wait for. Listeners read the outcomes from the registry, because any role can
 * notify.
 */
export async function announceOutcomes(tx: Transaction, ids: readonly string[]): Promise<void> {
  const some = ids.length === 0 ? [[]] : slices(ids, IDS_PER_NOTIFICATION);
  const payloads = some.map((part) => part.join(''));
  await tx`
    select pg_notify(${OUTCOMES_CHANNEL}, payload)
    from unnest(${payloads}::text[]) as payload`;
}

/** Announces pending admissions to the workers, with their request ids for log lines. */
export async function announcePending(
  sql: Pool,
  proofIds: readonly string[],
  requestIds: readonly string[],
  tenants: readonly number[],
): Promise<void> {
  const requests = slices(requestIds, ANNOUNCED_AT_ONCE);
  const owners = slices(tenants, ANNOUNCED_AT_ONCE);
  const payloads = slices(proofIds, ANNOUNCED_AT_ONCE).map(
    (ids, at) =>
      `${ids.join('')} ${packRequestIds(requests[at] ?? [])} ${(owners[at] ?? []).join()}`,
  );
  // Does not wait for the disk or a standby, because all notifying commits wait for each other.
  await sql`
    select set_config('synchronous_commit', 'off', true), pg_notify(${PENDING_CHANNEL}, payload)
    from unnest(${payloads}::text[]) as payload`;
}

/**
 * The admissions of a payload, with their tenants, which an engine of an earlier version omits. Any role can notify,
 * so an id may be malformed or name any admission.
 */
export function announcedIn(payload: string): {
  ids: string[];
  requests: RequestIds;
  tenants: string[];
} {
  const [joined = '', ...others] = payload.split(' ');
  // Longer payloads are forged.
  const ids = payload.length > MOST_PAYLOAD_PER_ID * joined.length ? [] : unpackIds(joined);
  const tenants = others.length > ids.length ? others.pop()!.split(',') : [];
  return { ids, requests: unpackRequestIds(others.join(' '), ids), tenants };
}
