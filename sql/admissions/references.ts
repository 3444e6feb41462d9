import { documentHash } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import type { AepSubject } from '#protocol/schemas/aep';
import type { Effect } from '#protocol/status';
import { asTenants, type Db, type Pool } from '../db/transaction.js';
import { uuidTime } from '#protocol/ids';
import type { Run } from '#protocol/schemas/primitives';
import {
  type ApprovalCrypto,
  approvalFault,
  type PendingProof,
  type RecordedApproval,
} from '#protocol/approvals';
import { attempt } from '#protocol/errors';
import type { StoredApproval } from '#protocol/schemas/approvals';
import { arrayOf, firstRow } from '../db/columns.js';
import { APPROVAL_SECONDS, readStoredApproval } from '../proofs/rebuild-aep.js';

// The other admissions to which a request refers: its parent, the requests of its run, and the pending proof of a
// second decision.

/** The run of a request and the number of the request in the run, as in its intake row. */
export interface RunPlace {
  /** A hash of agent id and run id, because an erasure keeps this column. Lower-case hex. */
  runKey: string;
  seq: number;
  closes: boolean;
}

/** A run belongs to an agent: two agents that use the same run id have two runs. */
export function runKeyOf(agentId: string, runId: string): string {
  return documentHash(nativeSha256, [agentId, runId]);
}

/** The run and number that a request states; null when the request is in no run. */
export function runPlaceOf(request: ExecuteRequest | AgentEnvelope): RunPlace | null {
  if (!('run' in request)) return null;
  const { agent, kind, run } = request;
  return { runKey: runKeyOf(agent.id, run.id), seq: run.seq, closes: kind === 'close' };
}

/** Whether the subject states this run and number; with a null `place`, whether it states no run. */
export function isPlaceOf(subject: AepSubject, place: RunPlace | null): boolean {
  if (!('run' in subject)) return place === null;
  return (
    place?.runKey === runKeyOf(subject.agent.id, subject.run.id) &&
    place.seq === subject.run.seq &&
    place.closes === (subject.kind === 'close')
  );
}

/**
 * The number of `svc.intake i`. A row that is older than the constraint on this number may have one that the driver
 * cannot read: a worker rejects the row if this number differs from that of the request, which is at most 10,000.
 */
const seqOf = (db: Db) => db`least(i.run_seq, 9007199254740991)`;

/** A request in a run; rejected requests are left out. A second decision has the number of its pending proof. */
export interface RunMember {
  proofId: string;
  seq: number;
  closes: boolean;
  /** Null while the request is pending, like `effect` and `aepHash`. */
  leafIndex: number | null;
  effect: Effect | null;
  /** Lower-case hex. */
  aepHash: string | null;
}

/** The requests of a run, in log order; pending requests come last. */
export function membersOf(db: Db, tenantNo: number, runKey: string): Promise<RunMember[]> {
  return db<RunMember[]>`
    select i.proof_id as "proofId", ${seqOf(db)} as seq, i.run_closes as closes,
      e.leaf_index as "leafIndex", e.effect, encode(e.aep_hash, 'hex') as "aepHash"
    from svc.intake i
    -- "offset 0" keeps the planner from scanning all of svc.log_entry.
    left join lateral (
      select * from svc.log_entry where proof_id = i.proof_id offset 0) e on true
    where i.tenant_no = ${tenantNo} and i.run_key = decode(${runKey}, 'hex') and not i.refused
    order by e.leaf_index, i.run_seq`;
}

export function readRun(sql: Pool, tenantNo: number, runKey: string): Promise<RunMember[]> {
  return asTenants(sql, [tenantNo], (tx) => membersOf(tx, tenantNo, runKey));
}

/** The state of a run, which the engine checks before it accepts a request of the run. */
export interface RunState {
  /** The same request was accepted before, so the engine returns the first answer. */
  isRepeat: boolean;
  /** The engine has accepted a close of the run. */
  isClosed: boolean;
  /** The reason why a new close cannot end its open run; otherwise null. */
  fault: string | null;
}

export function readRunStates(
  sql: Pool,
  tenantNo: number,
  asked: readonly { lane: number; requestHash: string; run: RunPlace }[],
): Promise<RunState[]> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const rows = await tx<Omit<RunState, 'fault'>[]>`
      select exists (select from svc.intake i where i.tenant_no = ${tenantNo} and i.lane = asked.lane
          and i.request_hash = decode(asked.request_hash, 'hex') and not i.refused
          and i.approves is null) as "isRepeat",
        exists (select from svc.intake i where i.tenant_no = ${tenantNo}
          and i.run_key = decode(asked.run_key, 'hex') and i.run_closes and not i.refused) as "isClosed"
      from unnest(${asked.map(({ lane }) => lane)}::smallint[],
        ${asked.map(({ requestHash }) => requestHash)}::text[],
        ${asked.map(({ run }) => run.runKey)}::text[])
        with ordinality as asked(lane, request_hash, run_key, n)
      order by asked.n`;
    const states = rows.map((row, at) => ({
      ...row,
      ...asked[at]!.run,
      fault: null as string | null,
    }));
    const closing = states.filter((one) => one.closes && !one.isClosed && !one.isRepeat);
    // Reads each run once, and keeps only one in memory: a batch may close thousands of runs, each
    // of thousands of requests.
    let faultOf: (seq: number) => string | null = () => null;
    let last: string | null = null;
    for (const state of closing.sort(byRun)) {
      if (state.runKey !== last)
        faultOf = incompletenessOf(await membersOf(tx, tenantNo, state.runKey));
      last = state.runKey;
      state.fault = faultOf(state.seq);
    }
    return states;
  });
}

const byRun = (a: RunPlace, b: RunPlace): number =>
  a.runKey < b.runKey ? -1 : Number(a.runKey > b.runKey);

/** Run and number of each admission, by proof id, and whether the log has the close of that run. */
export async function placesOf(
  tx: Db,
  proofIds: readonly string[],
): Promise<Map<string, RunPlace & { isClosed: boolean }>> {
  if (proofIds.length === 0) return new Map();
  const rows = await tx<(RunPlace & { proofId: string; isClosed: boolean })[]>`
    select i.proof_id as "proofId", encode(i.run_key, 'hex') as "runKey", ${seqOf(tx)} as seq,
      i.run_closes as closes,
      exists (select from svc.intake c where c.tenant_no = i.tenant_no and c.run_key = i.run_key
        and c.run_closes and not c.refused and c.proof_id <> i.proof_id
        and (select true from svc.log_entry e where e.proof_id = c.proof_id)) as "isClosed"
    from svc.intake i where i.proof_id = any(${[...proofIds]}::uuid[]) and i.run_key is not null`;
  return new Map(rows.map((row) => [row.proofId, row]));
}

/** The part of a parent proof that the validation of an envelope may use. */
export interface Parent {
  effect: Effect;
  kind: 'action' | 'outcome';
}

/** The tenant's own proofs with these ids; null for an id without such a proof, or an erased proof. */
export function findParents(
  sql: Pool,
  tenantNo: number,
  proofIds: readonly string[],
): Promise<(Parent | null)[]> {
  const asked = proofIds.map((proofId) => ({ tenantNo, proofId }));
  return asTenants(sql, [tenantNo], (tx) => parentsOf(tx, asked));
}

export async function parentsOf(
  tx: Db,
  asked: readonly { tenantNo: number; proofId: string }[],
): Promise<(Parent | null)[]> {
  if (asked.length === 0) return [];
  const rows = await tx<(Omit<Parent, 'effect'> & { effect: Parent['effect'] | null })[]>`
    select e.effect, case when e.is_outcome then 'outcome' else 'action' end as kind
    from unnest(${asked.map(({ proofId }) => proofId)}::uuid[],
      ${asked.map(({ tenantNo }) => tenantNo)}::int[]) with ordinality as asked(proof_id, tenant_no, n)
    left join (select * from svc.log_entry where signature is not null) e using (proof_id, tenant_no)
    order by asked.n`;
  return rows.map(({ effect, kind }) => (effect === null ? null : { effect, kind }));
}

export type ParentFault = 'parent_not_found' | 'parent_not_admitted';

/**
 * Why the parent of a subject is invalid, or null. The parent of an outcome must be the admission of
 * an action. An admission may follow from any proof of the tenant whose payload is not erased.
 */
export function parentFault(
  kind: 'admission' | 'outcome',
  parent: Parent | null,
): ParentFault | null {
  if (parent === null) return 'parent_not_found';
  if (kind !== 'outcome') return null;
  return parent.effect === 'ADMIT' && parent.kind === 'action' ? null : 'parent_not_admitted';
}

/** How far the time in a run's id may be ahead of the service's clock, in milliseconds. */
export const MAX_AHEAD_MS = 60_000;

/** Whether a run's id, a UUIDv7, has an acceptable time at `now`, in epoch milliseconds. */
export function isRunTimely({ id }: Run, now: number): boolean {
  return uuidTime(id) <= now + MAX_AHEAD_MS;
}

/** Why a close with `seq` cannot end a run; null if exactly the requests 0 to `seq` − 1 exist and are decided. */
export function incompletenessOf(members: readonly RunMember[]): (seq: number) => string | null {
  const others = members.filter(({ closes }) => !closes);
  const numbers = new Set(others.map(({ seq }) => seq));
  const last = others.reduce((most, { seq }) => Math.max(most, seq), -1);
  const pending = others.filter(({ leafIndex }) => leafIndex === null);
  let missing = 0;
  while (numbers.has(missing)) missing += 1;
  return (seq) => {
    if (last >= seq) return `the run has a request with seq ${last}`;
    if (pending[0] !== undefined) return `${andMore(pending[0].seq, pending.length)} pending`;
    return numbers.size === seq ? null : `${andMore(missing, seq - numbers.size)} missing`;
  };
}

const andMore = (seq: number, count: number): string =>
  count === 1 ? `seq ${seq} is` : `seq ${seq} and ${count - 1} more are`;

/** A pending proof, with the facts that decide whether an approval still has an effect. */
interface PendingAdmission extends PendingProof {
  leafIndex: number;
  isErased: boolean;
  isRevoked: boolean;
  acceptedAt: Date;
  approvalSeconds: number;
}

/** Columns of a PendingAdmission, from `svc.log_entry e`, `svc.intake p` and `svc.tenant t`. */
const pendingColumns = (sql: Db) => sql`
  e.proof_id as "proofId", t.tenant_id as "tenantId", e.effect, e.leaf_index as "leafIndex",
  encode(e.aep_hash, 'hex') as "aepHash", num_nulls(p.request, e.reasons) > 0 as "isErased", e.reasons,
  exists (select from svc.log_entry s where s.kind = 2 and s.revokes = e.proof_id) as "isRevoked",
  p.accepted_at as "acceptedAt",
  coalesce((p.validity ->> 'approval')::integer, ${APPROVAL_SECONDS}) as "approvalSeconds"`;

/** One of the tenant's proofs; null when unknown. */
export function readPendingProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PendingAdmission | null> {
  return asTenants(sql, [tenantNo], (tx) =>
    firstRow(tx<PendingAdmission[]>`
      select ${pendingColumns(tx)}
      from svc.log_entry e join svc.intake p using (proof_id) join svc.tenant t on t.tenant_no = e.tenant_no
      where e.proof_id = ${proofId}::uuid and e.tenant_no = ${tenantNo} and p.tenant_no = ${tenantNo}`),
  );
}

/**
 * Why an approval has no effect; null if it has an effect. Both the engine and the worker run this check.
 *
 * @param isActive whether the approver's registration is active at the leaf of the second decision
 * @param acceptedAt when the service accepted the approval, in epoch milliseconds
 */
export function whyNotApprove(
  crypto: ApprovalCrypto,
  stored: StoredApproval,
  at: { pending: PendingAdmission; isActive: boolean; acceptedAt: number },
): string | null {
  const { acceptedAt, pending } = at;
  if (pending.isErased) return 'the pending proof was erased';
  if (pending.isRevoked) return 'the pending proof was revoked';
  const end = pending.acceptedAt.getTime() + pending.approvalSeconds * 1000;
  if (acceptedAt >= end) return 'the time for an approval has ended';
  return approvalFault(crypto, stored, at);
}

export interface SecondDecision {
  /** The pending proof; null when the tenant has no such proof. */
  pending: PendingAdmission | null;
  /** Whether request, environment and agent equal those of the pending proof; null once the pending proof is erased. */
  isSame: boolean | null;
  /** Whether no other decided admission is a second decision about the pending proof. */
  isOnly: boolean;
}

/** The second decisions among these admissions, by proof id. */
export async function readSecondDecisions(
  sql: Db,
  proofIds: readonly string[],
): Promise<Map<string, SecondDecision>> {
  if (proofIds.length === 0) return new Map();
  const rows = await sql<
    (Omit<SecondDecision, 'pending'> & { second: string } & PendingAdmission)[]
  >`
    select i.proof_id as second, ${pendingColumns(sql)},
      case when p.request is not null then
        (i.lane, i.request_hash, i.request, i.bound, i.environment)
          is not distinct from (p.lane, p.request_hash, p.request, p.bound, p.environment) end as "isSame",
      not exists (select from svc.intake o join svc.log_entry l using (proof_id)
        where o.approves = i.approves and not o.refused and o.proof_id <> i.proof_id) as "isOnly"
    from svc.intake i
    left join svc.intake p on p.proof_id = i.approves and p.tenant_no = i.tenant_no
    left join svc.log_entry e on e.proof_id = p.proof_id
    left join svc.tenant t on t.tenant_no = p.tenant_no
    where i.proof_id = any(${arrayOf(proofIds)}::uuid[]) and i.approves is not null`;
  return new Map(
    rows.map(({ second, isOnly, isSame, ...pending }) => [
      second,
      { isOnly, isSame, pending: (pending.proofId as string | null) === null ? null : pending },
    ]),
  );
}

/** The approvals of these proofs, by proof id; reads nothing when no proof is a second decision. */
export async function readApprovals(
  sql: Db,
  proofs: readonly { proofId: string; approval: Buffer | null }[],
): Promise<Map<string, RecordedApproval>> {
  const stored = new Map(
    proofs.flatMap(({ proofId, approval }) => {
      const read = attempt(() => readStoredApproval(approval)) ?? null;
      return read === null ? [] : [[proofId, read] as const];
    }),
  );
  const found = await readSecondDecisions(sql, [...stored.keys()]);
  return new Map(
    [...stored].map(([proofId, one]) => [
      proofId,
      { stored: one, ...(found.get(proofId) ?? { pending: null, isSame: null, isOnly: false }) },
    ]),
  );
}
