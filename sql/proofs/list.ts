import {
  verificationStatus,
  type ArtifactKind,
  type Effect,
  type VerificationStatus,
} from '#protocol/status';
import { attempt } from '#protocol/errors';
import type { VerdictInHistory } from '#protocol/history';
import { parseStrict } from '#protocol/json';
import type { KeyedEntry } from '#protocol/keys';
import type { Environment, Run } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import { type Db, type Pool, type Transaction, asTenants } from '../db/transaction.js';
import { arrayOf, batchIdOf, comparableTime, valuesOf } from '../db/columns.js';
import { compromisesIn, keysInLog, voidingLeaf } from '../log/keys.js';
import { statusesOf } from './read.js';
import { verdictsForLeaves } from '../log/verdicts.js';

export interface ProofInList {
  proofId: string;
  leafIndex: number;
  environment: Environment;
  lane: 1 | 2;
  effect: Effect;
  isOutcome: boolean;
  action: string | null;
  intentId: string | null;
  parent: string | null;
  /** Whether the API key was restricted to the agent; null after an erasure. */
  bound: boolean | null;
  /** The batch that the admission was accepted with; null for a single admission. */
  batchId: string | null;
  /** Agent, tool and run are from the request: absent when it states none, and after an erasure. */
  agent?: { id: string };
  tool?: string;
  run?: Run;
  /** Epoch milliseconds. */
  acceptedAt: number;
  verdict: VerdictInHistory | null;
  /** Whether a key compromise in the log voids the proof. */
  isVoided: boolean;
  revoked: ArtifactKind[];
}

export interface ProofFilter {
  lane?: 1 | 2 | undefined;
  effect?: Effect | undefined;
  action?: string | undefined;
  intentId?: string | undefined;
  agent?: string | undefined;
  tool?: string | undefined;
  runKey?: string | undefined;
  parent?: string | undefined;
  /** 32 hex characters. */
  batch?: string | undefined;
  bound?: boolean | undefined;
  /** Epoch milliseconds: the lower bound is inclusive, the upper bound exclusive. */
  acceptedFrom?: number | undefined;
  acceptedBefore?: number | undefined;
}

export interface ListQuery {
  tenantNo: number;
  filter: ProofFilter;
  /** Only leaves below this index; null starts with the newest. */
  below: number | null;
  limit: number;
  /** Lists only proofs with this status; all proofs when absent. */
  status: VerificationStatus | undefined;
}

/**
 * Maximum number of leaves that one request scans. A selective filter gives short pages and continues with
 * the next request, so that no request scans a whole registry.
 */
const MAX_SCANNED = 4_000;
const SCAN_GROWS_BY = 4;

/** Longer than any time between acceptance and checkpoint, including clock skew. */
const CHECKPOINT_SLACK_MS = 15 * 60_000;

export interface ProofPage {
  proofs: ProofInList[];
  next: number | null;
}

/**
 * One page of a tenant's proofs, newest first, and the index to continue below. Leaves are in
 * commit order, so later appends change neither this page nor later pages.
 */
export function listProofs(sql: Pool, query: ListQuery): Promise<ProofPage> {
  const { limit, status } = query;
  const isSelection = query.filter.runKey !== undefined || query.filter.batch !== undefined;
  const keep = (proof: WithoutBatch): boolean =>
    status === undefined || listedStatus(proof) === status;
  const page = async (tx: Transaction, keys: Keys) => {
    const floor = await firstLeafSince(tx, query.filter.acceptedFrom);
    const kept: WithoutBatch[] = [];
    let below = query.below ?? Number.MAX_SAFE_INTEGER;
    let budget = MAX_SCANNED;
    // One extra row shows whether there is another page.
    let size = limit + 1;
    while (budget > 0) {
      size = Math.min(size, budget);
      const scan = await scanLeaves(tx, query, { keys, floor, below, size });
      kept.push(...(await withStatusInputs(tx, scan.matching, keys)).filter(keep));
      if (kept.length > limit) {
        const proofs = kept.slice(0, limit);
        return { proofs, next: proofs.at(-1)?.leafIndex ?? null };
      }
      if (scan.scanned < size || scan.least === null) return { proofs: kept, next: null };
      below = scan.least;
      budget -= size;
      // A scan with the filter `run` or `batch` looks up all proofs of the run or batch, so the second scan is the
      // last.
      size = isSelection ? budget : size * SCAN_GROWS_BY;
    }
    return { proofs: kept, next: below };
  };
  const pageWithBatches = async (tx: Transaction, keys: Keys) => {
    const { next, proofs } = await page(tx, keys);
    const batches = await batchesOf(tx, query.tenantNo, proofs);
    return {
      proofs: proofs.map((one) => ({ ...one, batchId: batches.get(one.proofId) ?? null })),
      next,
    };
  };
  return asTenants(sql, [query.tenantNo], pageWithBatches, keysInLog);
}

/** The batches of these proofs, by proof id. Ignores items that only repeat an earlier admission. */
async function batchesOf(
  tx: Transaction,
  tenantNo: number,
  proofs: readonly WithoutBatch[],
): Promise<Map<string, string>> {
  if (proofs.length === 0) return new Map();
  // An admission has the acceptance time of its batch, so an index finds the few batches to read.
  const times = [...new Set(proofs.map(({ acceptedAt }) => formatTime(acceptedAt)))];
  const ids = proofs.map(({ proofId }) => proofId);
  const rows = await tx<{ proofId: string; batchId: string }[]>`
    select u.proof_id as "proofId", b.batch_id as "batchId"
    from svc.batch b join svc.batch_part p using (batch_id)
    cross join unnest(p.proof_ids, p.replayed) as u(proof_id, replayed)
    where b.tenant_no = ${tenantNo} and b.accepted_at = any(${arrayOf(times)}::timestamptz[])
      and u.proof_id = any(${arrayOf(ids)}::uuid[]) and u.replayed is not true`;
  return new Map(rows.map(({ batchId, proofId }) => [proofId, batchIdOf(batchId)]));
}

/** An index, derived from checkpoint times, such that every lower leaf was accepted before `time`. */
export async function firstLeafSince(sql: Db, time: number | undefined): Promise<number> {
  if (time === undefined) return 0;
  const [size] = await valuesOf<number>(sql`
    select tree_size from svc.checkpoint
    where created_at < ${comparableTime(time - CHECKPOINT_SLACK_MS)}
    order by created_at desc limit 1`);
  return size ?? 0;
}

type Keys = readonly KeyedEntry[] | null;

type WithoutBatch = Omit<ProofInList, 'batchId'>;

type Scanned = Omit<WithoutBatch, 'agent' | 'isVoided' | 'revoked' | 'run' | 'tool' | 'verdict'> & {
  request: Buffer | null;
  keyId: string;
  hasPayload: boolean;
};

type ScanRow = Omit<Scanned, 'acceptedAt'> & {
  scanned: number;
  least: number | null;
  /** Null when no leaf matches: then a single row has `scanned` and `least`. */
  acceptedAt: Date | null;
};

/** The part of the log that one scan reads: the newest `size` leaves with indexes in [floor, below). */
interface ScanRange {
  keys: Keys;
  floor: number;
  below: number;
  size: number;
}

/** Scans leaves of the tenant and returns those that match the filter. */
async function scanLeaves(
  tx: Transaction,
  { tenantNo, filter, status }: ListQuery,
  range: ScanRange,
): Promise<{ scanned: number; least: number | null; matching: Scanned[] }> {
  const { lane, effect, action, intentId, parent, acceptedFrom, acceptedBefore } = filter;
  const { below, floor, size } = range;
  const selected = selection(tx, tenantNo, filter);
  const isException = status !== undefined && status !== 'VALID' && range.keys !== null;
  // Looks up the leaf of each exception: the planner could turn a join into a scan of all the tenant's proofs.
  const source = isException
    ? tx`(${exceptions(tx, tenantNo, status, range)}) x cross join lateral (
        select * from svc.log_entry e where e.tenant_no = ${tenantNo} and e.leaf_index = x.leaf
        limit 1) e`
    : tx`svc.log_entry`;
  // Intents have an index, so only the intent's leaves are scanned.
  const ofIntent = intentId === undefined || isException ? tx`` : tx`and intent_id = ${intentId}`;
  const ofParent = parent === undefined || isException ? tx`` : tx`and parent = ${parent}::uuid`;
  // The ids are an array, so that the planner looks up each id and does not scan the tenant's proofs.
  const ofSelected =
    selected === null || isException ? tx`` : tx`and proof_id = any(array(${selected}))`;
  const rows = await tx<ScanRow[]>`
    with seen as materialized (
      select proof_id, leaf_index, environment, lane, effect, is_outcome, action, intent_id, parent,
        key_id, at, signature is not null as has_payload
      from ${source}
      where tenant_no = ${tenantNo} and leaf_index < ${below} and leaf_index >= ${floor} ${ofIntent} ${ofParent}
        ${ofSelected}
      order by leaf_index desc limit ${size}),
    counted as (select count(*)::integer as scanned, min(leaf_index) as least from seen),
    matching as (
      select * from seen
      where (${lane ?? null}::smallint is null or lane = ${lane ?? null})
        and (${effect ?? null}::text is null or effect = ${effect ?? null})
        and (${action ?? null}::text is null or action = ${action ?? null})
        and (${intentId ?? null}::text is null or intent_id = ${intentId ?? null})
        and (${parent ?? null}::uuid is null or parent = ${parent ?? null})
        ${selected === null || !isException ? tx`` : tx`and proof_id in (${selected})`}
        ${inRequest(tx, filter)}
        and (${dateOf(acceptedFrom)}::timestamptz is null or at >= ${dateOf(acceptedFrom)})
        and (${dateOf(acceptedBefore)}::timestamptz is null or at < ${dateOf(acceptedBefore)}))
    select c.scanned, c.least, m.proof_id as "proofId", m.leaf_index as "leafIndex", m.environment,
      m.lane, m.effect, m.is_outcome as "isOutcome", m.action, m.intent_id as "intentId",
      m.parent, i.request, case when i.request is not null then i.bound end as bound,
      m.at as "acceptedAt", m.key_id as "keyId", m.has_payload as "hasPayload"
    from counted c left join matching m on true
    left join lateral (select request, bound from svc.intake where proof_id = m.proof_id offset 0) i
      on true
    order by m.leaf_index desc`;
  const matching = rows.flatMap(({ scanned: _scanned, least: _least, acceptedAt, ...row }) =>
    acceptedAt === null ? [] : [{ ...row, acceptedAt: acceptedAt.getTime() }],
  );
  return { scanned: rows[0]?.scanned ?? 0, least: rows[0]?.least ?? null, matching };
}

/** The condition on the stored request; only the requests of scanned leaves are parsed. */
function inRequest(tx: Transaction, { agent, bound, tool }: ProofFilter) {
  if (agent === undefined && tool === undefined && bound === undefined) return tx``;
  return tx`and exists (select from svc.intake i where i.proof_id = seen.proof_id
    and i.request is not null
    and (${bound ?? null}::boolean is null or (lane = 2 and i.bound = ${bound ?? null}))
    and (${agent ?? null}::text is null or lane = 2
      and convert_from(i.request, 'UTF8')::jsonb #>> '{agent,id}' = ${agent ?? null})
    and (${tool ?? null}::text is null or lane = 2
      and convert_from(i.request, 'UTF8')::jsonb ->> 'tool' = ${tool ?? null}))`;
}

/** The proof ids of a run or of a batch, as a query; null without such a filter. */
function selection(tx: Transaction, tenantNo: number, { batch, runKey }: ProofFilter) {
  if (runKey === undefined && batch === undefined) return null;
  const ofRun =
    runKey === undefined
      ? tx``
      : tx`select i.proof_id from svc.intake i
          where i.tenant_no = ${tenantNo} and i.run_key = decode(${runKey}, 'hex') and not i.refused`;
  const ofBatch =
    batch === undefined
      ? tx``
      : tx`select u.proof_id from svc.batch b join svc.batch_part p using (batch_id)
          cross join unnest(p.proof_ids) as u(proof_id)
          where b.tenant_no = ${tenantNo} and b.batch_id = ${batch}::uuid`;
  return tx`${ofRun} ${runKey !== undefined && batch !== undefined ? tx`intersect` : tx``} ${ofBatch}`;
}

/**
 * The tenant's leaves whose status can differ from VALID, newest first. Leaves without a
 * verdict and leaves that a compromise may void are included for BACKEND_LOOKUP_REQUIRED only: the
 * verifier may not have verified voided leaves again yet.
 */
function exceptions(
  tx: Transaction,
  tenantNo: number,
  status: VerificationStatus,
  range: ScanRange,
) {
  const { below, floor, size } = range;
  const listed = tx`
    (select distinct leaf_index as leaf from svc.status_exception
      where tenant_no = ${tenantNo} and leaf_index < ${below} and leaf_index >= ${floor}
      order by leaf_index desc limit ${size})`;
  if (status !== 'BACKEND_LOOKUP_REQUIRED') return listed;
  return tx`${listed} ${voidedLeaves(tx, tenantNo, range)} union
    (select leaf_index from svc.log_entry
      where tenant_no = ${tenantNo} and leaf_index < ${below}
        and leaf_index >= greatest(${floor}::bigint, coalesce(
          (select last_index + 1 from svc.verdict where frontier order by last_index desc limit 1), 0))
      order by leaf_index desc limit ${size})`;
}

/**
 * The leaves between the lowest and the highest void index that a compromised key, or a key that a compromised root
 * delegated, signed.
 */
function voidedLeaves(tx: Transaction, tenantNo: number, { keys, floor, below, size }: ScanRange) {
  const ranges = compromisesIn(keys ?? []);
  if (ranges.length === 0) return tx``;
  const roots = ranges.flatMap(({ isRoot, keyId }) => (isRoot ? [keyId] : []));
  const from = Math.max(floor, Math.min(...ranges.map((range) => range.from)));
  const until = Math.min(below, Math.max(...ranges.map((range) => range.until)));
  return tx`union
    (select leaf_index from svc.log_entry
      where tenant_no = ${tenantNo} and leaf_index < ${until} and leaf_index >= ${from}
        and (key_id = any(${ranges.map((range) => range.keyId)}) or key_id = any(array(
          select convert_from(d.body, 'UTF8')::jsonb ->> 'key_id' from svc.log_entry d
          where d.kind = 3 and position('"delegation"' in d.body) > 0
            and convert_from(d.body, 'UTF8')::jsonb #>> '{delegation,root_key_id}' = any(${roots}::text[]))))
      order by leaf_index desc limit ${size})`;
}

function dateOf(epochMs: number | undefined): Date | null {
  return epochMs === undefined ? null : comparableTime(epochMs);
}

async function withStatusInputs(
  tx: Transaction,
  proofs: Scanned[],
  keys: Keys,
): Promise<WithoutBatch[]> {
  if (proofs.length === 0) return [];
  const leaves = proofs.map(({ leafIndex }) => leafIndex);
  const ids = proofs.map(({ proofId }) => proofId);
  const [verdicts, statuses] = await Promise.all([
    verdictsForLeaves(tx, leaves),
    statusesOf(tx, ids),
  ]);
  const revoked = new Map<string, ArtifactKind[]>();
  const damaged = new Set<string>();
  for (const { proofId, entry } of statuses) {
    if (entry === null) damaged.add(proofId);
    else revoked.set(proofId, [...(revoked.get(proofId) ?? []), entry.artifact_kind]);
  }
  // Only the activation of a key shows that a compromised root delegated the key.
  const mayBeVoided = keys !== null && compromisesIn(keys).length > 0;
  const signers = proofs.map(({ keyId }) => keyId);
  const withDelegations = mayBeVoided ? await keysInLog(tx, signers) : keys;
  return proofs.map(({ keyId, hasPayload, request, ...proof }) => ({
    ...proof,
    ...callIn(request),
    // An unreadable entry may be a revocation, so no status is reported.
    verdict: damaged.has(proof.proofId)
      ? null
      : inForce(verdicts.get(proof.leafIndex) ?? null, hasPayload),
    isVoided: voidingLeaf(withDelegations, keyId, proof.leafIndex) !== null,
    revoked: revoked.get(proof.proofId) ?? [],
  }));
}

function callIn(request: Buffer | null): Pick<ProofInList, 'agent' | 'run' | 'tool'> {
  if (request === null) return {};
  const { agent, run, tool } = (attempt(() => parseStrict(request)) ?? {}) as Partial<ProofInList>;
  return { ...(agent && { agent }), ...(run && { run }), ...(tool !== undefined && { tool }) };
}

export function listedStatus(proof: WithoutBatch): VerificationStatus {
  const { effect, isOutcome, verdict, isVoided, revoked } = proof;
  return verificationStatus({
    kind: 'proof',
    effect,
    isOutcome,
    verdict: verdict?.outcome ?? 'none',
    isVoided,
    revoked,
    expired: verdict?.expired ?? [],
  });
}

/** An erased proof has no effective verdict, even before the verifier records the erasure. */
function inForce(verdict: VerdictInHistory | null, hasPayload: boolean): VerdictInHistory | null {
  if (verdict?.outcome !== 'pass' || hasPayload) return verdict;
  return { ...verdict, outcome: 'erased' };
}
