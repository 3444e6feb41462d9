import { documentHash } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import type { AepSubject } from '#protocol/schemas/aep';
import type { Effect } from '#protocol/status';
import { asTenants, type Db, type Pool } from '../db/transaction.js';

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
 * The number of `svc.intake i`. A row that is older than the constraint on this number may have one that the
 * driver cannot read: a worker rejects the row if this number differs from that of the request, which is at most 10,000.
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

/** @param faultsOf returns why a close with the number `seq` cannot end the run of `members`, or null */
export function readRunStates(
  sql: Pool,
  tenantNo: number,
  asked: readonly { lane: number; requestHash: string; run: RunPlace }[],
  faultsOf: (members: readonly RunMember[]) => (seq: number) => string | null,
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
      if (state.runKey !== last) faultOf = faultsOf(await membersOf(tx, tenantNo, state.runKey));
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
