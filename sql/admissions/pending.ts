import { type Db, type Fragment, pipeline, type Transaction } from '../db/transaction.js';
import { arrayOf, batchIdOf, bytesInJson, unpackIds, valueOf } from '../db/columns.js';
import {
  lastTile,
  type LastTile,
  lastTileColumns,
  lastTileIn,
  type LastTileRow,
} from '../log/append.js';
import { keyEntries } from '../log/keys.js';
import type { EntryBody } from '../log/log.js';
import {
  type PinnedIntake,
  sharedColumns,
  sharedPins,
  type SharedRow,
} from '../proofs/rebuild-aep.js';

/** The batch of an admission, and the number of items of the batch with this admission. */
export interface BatchRef {
  batchId: string;
  items: number;
}

/** An accepted admission, and the pending row that a worker deletes when it claims the admission. */
export interface PendingIntake extends PinnedIntake {
  /** The batch of the admission; null for an admission in no batch. */
  batch: BatchRef | null;
  /** The pending chunk with the admission; null when the admission has a separate pending row. */
  chunkId: string | null;
  /** Whether the request ends its run; null when the request is in no run. */
  runCloses: boolean | null;
}

/**
 * Reads and locks the admissions in `proofIds` that have separate pending rows, ordered by id. Skips admissions that
 * another transaction has locked, because every worker gets every announcement. The locks are advisory: a row lock held
 * while waiting for the append lock could deadlock with a claim.
 */
export function loadPending(tx: Db, proofIds: readonly string[]): Promise<PendingIntake[]> {
  return load(
    tx,
    tx`
    select proof_id, null::uuid as chunk_id, batch_id, batch_items as answers
    from (select * from svc.intake_pending where proof_id = any(${arrayOf(proofIds)}::uuid[])
      offset 0) pending
    where pg_try_advisory_xact_lock(hashtextextended(proof_id::text, 0))`,
  );
}

/**
 * Reads the admissions of the chunks, ordered by id; skips chunks that are no longer pending. Reads
 * whole chunks with up to `most` admissions in total, because a forged job may name more chunks.
 */
export function loadChunks(
  sql: Db,
  chunkIds: readonly string[],
  most: number,
): Promise<PendingIntake[]> {
  return load(
    sql,
    sql`
    select u.proof_id, c.chunk_id, c.batch_id, coalesce(u.answers, 1) as answers
    from (
      select *, sum(admissions) over (order by batch_id, first_index) as so_far
      from svc.chunk_pending where chunk_id = any(${arrayOf(chunkIds)}::uuid[])) c
    join svc.batch_part b using (batch_id, first_index)
    cross join lateral unnest(b.proof_ids, b.replayed, c.answers) as u(proof_id, replayed, answers)
    where c.so_far <= ${most} and u.replayed is not true`,
  );
}

interface PackedRow extends SharedRow {
  chunkId: string | null;
  batchId: string | null;
  answers: number;
  runCloses: boolean | null;
  packed: Buffer;
}

/** Admissions of one batch share most columns, so they are read as one row that packs the other columns. */
async function load(sql: Db, pending: Fragment): Promise<PendingIntake[]> {
  const rows = await sql<PackedRow[]>`
    select ${sharedColumns(sql)}, p.chunk_id as "chunkId", p.batch_id as "batchId", p.answers,
      i.run_closes as "runCloses",
      string_agg(uuid_send(i.proof_id) || i.seed || i.request_hash
        || int4send(length(i.request)) || i.request, '') as packed
    from (${pending}) p
    -- "offset 0" prevents a plan that joins the whole table: the plan is cached, and the table grows.
    cross join lateral (select * from svc.intake where proof_id = p.proof_id offset 0) i
    join svc.tenant t using (tenant_no)
    group by i.tenant_no, t.tenant_id, i.lane, i.environment, i.accepted_at, i.bound, i.policy_digest,
      i.fixture_hash, i.validity, i.approval, i.run_closes, p.chunk_id, p.batch_id, p.answers`;
  return rows.flatMap(unpack).sort((a, b) => (a.proofId < b.proofId ? -1 : 1));
}

const HEAD_BYTES = 16 + 32 + 32 + 4;

function unpack({
  packed,
  chunkId,
  batchId,
  answers,
  runCloses,
  ...row
}: PackedRow): PendingIntake[] {
  const batch = batchId === null ? null : { batchId: batchIdOf(batchId), items: answers };
  const shared = { ...sharedPins(row), batch, chunkId, runCloses };
  const found: PendingIntake[] = [];
  for (let at = 0; at < packed.length;) {
    const end = at + HEAD_BYTES + packed.readInt32BE(at + HEAD_BYTES - 4);
    found.push({
      ...shared,
      proofId: packed.toString('hex', at, at + 16),
      seed: packed.subarray(at + 16, at + 48),
      requestHash: packed.subarray(at + 48, at + 80),
      request: packed.subarray(at + HEAD_BYTES, end),
    });
    at = end;
  }
  return found;
}

/** Admissions of a pending chunk are missing or have no payload, so the chunk cannot be claimed. */
export class ChunkIncompleteError extends Error {}

/**
 * Claims pending admissions in this transaction, and returns the ids of the claimed admissions.
 * Only one transaction can commit the claim, so an admission is decided once. Claims nothing
 * outside a transaction, where a claim would lose the admission. An admission whose acceptance time
 * is in the future, by at most a day, stays pending until that time; the worker rejects an admission
 * with a later time. Such times occur after the database clock was set back, or after the promotion
 * of a standby whose clock is behind.
 *
 * @throws ChunkIncompleteError when `intakes` lacks admissions of a chunk
 */
export async function claimPending(
  tx: Transaction,
  intakes: readonly ClaimedIntake[],
): Promise<Set<string>> {
  const [, [claims]] = await pipeline(
    tx`select ${allowClaims(tx)}`,
    tx<[ClaimRow]>`${claiming(tx, intakes)} select ${claimColumns(tx)}`,
  );
  return claimsIn(claims, intakes);
}

type ClaimedIntake = Pick<PendingIntake, 'proofId' | 'chunkId'>;

// The setting ends with its transaction: outside a transaction, claims do not see the setting and delete nothing.
const allowClaims = (tx: Transaction) => tx`set_config('svc.claims', 'on', true)`;

/** The CTEs that claim pending rows; `claimColumns` selects their results. */
function claiming(tx: Transaction, intakes: readonly ClaimedIntake[]): Fragment {
  const singles = intakes.flatMap(({ proofId, chunkId }) => (chunkId === null ? [proofId] : []));
  const mayClaim = tx`current_setting('svc.claims', true) = 'on'
    and (accepted_at <= (select clock_timestamp() + interval '1 second')
      or accepted_at > (select clock_timestamp() + interval '1 day'))`;
  return tx`
    with singles as (
      delete from svc.intake_pending where proof_id = any(${arrayOf(singles)}::uuid[])
        and ${mayClaim} returning proof_id),
    chunks as (
      delete from svc.chunk_pending
      where chunk_id = any(${arrayOf([...byChunk(intakes).keys()])}::uuid[])
        and ${mayClaim} returning chunk_id, admissions)`;
}

interface ClaimRow {
  singles: string | null;
  chunks: Record<string, number> | null;
}

const claimColumns = (tx: Transaction) => tx`
  (select ${packIds(tx)} from singles) as singles,
  (select json_object_agg(encode(uuid_send(chunk_id), 'hex'), admissions) from chunks) as chunks`;

function claimsIn({ singles, chunks }: ClaimRow, intakes: readonly ClaimedIntake[]): Set<string> {
  const loaded = byChunk(intakes);
  return new Set([
    ...unpackIds(singles ?? ''),
    ...Object.entries(chunks ?? {}).flatMap(([chunkId, admissions]) => {
      const ids = loaded.get(chunkId) ?? [];
      if (ids.length === admissions) return ids;
      throw new ChunkIncompleteError(
        `chunk ${chunkId} has ${admissions} admissions, of which ${ids.length} were read`,
      );
    }),
  ]);
}

function byChunk(intakes: readonly ClaimedIntake[]): Map<string, string[]> {
  const chunks = new Map<string, string[]>();
  for (const { proofId, chunkId } of intakes) {
    if (chunkId !== null && !chunks.get(chunkId)?.push(proofId)) chunks.set(chunkId, [proofId]);
  }
  return chunks;
}

const packIds = (tx: Db) => tx`encode(string_agg(uuid_send(proof_id), ''), 'hex')`;

export interface AppendStart {
  /** Number of leaves of the log, which cannot change under the append lock. */
  size: number;
  claims: Set<string>;
  gates: Map<string, Gate>;
  /** The key entries with an index of at least `keysFrom`. */
  keyEntries: EntryBody[];
  lastTile: LastTile | null;
  /** Time of the last adoption or retirement of a log, in epoch milliseconds; null without one. */
  lossAt: number | null;
}

/**
 * Takes the append lock, claims admissions as `claimPending` does, and reads what the append needs.
 * In READ COMMITTED the second statement sees every earlier append, and the lock excludes new
 * appends.
 */
export async function beginAppend(
  tx: Transaction,
  intakes: readonly ClaimedIntake[],
  keysFrom: number,
): Promise<AppendStart> {
  const proofIds = intakes.map(({ proofId }) => proofId);
  const [[{ size }], [row]] = await pipeline(
    tx<[{ size: number }]>`
      select tree_size as size, ${allowClaims(tx)} from svc.log_head for update`,
    tx<[ClaimRow & StartRow]>`
      ${claiming(tx, intakes)}
      select ${claimColumns(tx)}, (select json_agg(g) from (${selectGates(tx, proofIds)}) g) as gates,
        (select json_agg(k) from (${keyEntries(tx, keysFrom)}) k) as "keyEntries",
        ${lastTileColumns(tx)}, greatest((select max(at) from svc.adoption),
          (select max(ended_at) from svc.retired_log)) as "lossAt"
      from (select) one left join ${lastTile(tx)} on true`,
  );
  return {
    size,
    claims: claimsIn(row, intakes),
    gates: gatesIn(row.gates ?? []),
    keyEntries: (row.keyEntries ?? []).map(({ leafIndex, body }) => ({
      leafIndex,
      body: bytesInJson(body),
    })),
    lastTile: lastTileIn(row),
    lossAt: row.lossAt?.getTime() ?? null,
  };
}

interface StartRow extends LastTileRow {
  gates: GateRow[] | null;
  keyEntries: { leafIndex: number; body: string }[] | null;
  lossAt: Date | null;
}

export interface Gate {
  allowlisted: boolean;
  environmentOpen: boolean;
  /**
   * The caller's API key is not revoked. For an approval, the key of the approved request is not
   * revoked either, and had not expired when the approval was accepted. A later expiry does not
   * matter.
   */
  keyHolds: boolean;
  /** Agent that the API key is restricted to, or null. */
  agentId: string | null;
  /**
   * The environment is the tenant's, the acceptance time has passed, the policy set was in force then or replaced less
   * than 10 minutes before, and the admission is bound exactly when its key is restricted to an agent.
   */
  pinsHold: boolean;
}

type GateRow = Gate & { ids: string };

/**
 * The gates (allowlist, environment, API key) of admissions, and whether their pinned columns are valid: one
 * row for all admissions of a tenant, key, environment, policy and time.
 */
const selectGates = (tx: Db, proofIds: readonly string[]) => tx`
  select i.ids, t.allowlisted, l.open as "environmentOpen",
    (i.key_no is null or (k.key_no is not null and k.revoked_at is null))
      and (i.approves is null or not exists (select from svc.intake p
        join svc.api_key pk on pk.key_no = p.key_no and pk.tenant_no = p.tenant_no
        where p.proof_id = i.approves
          and (pk.revoked_at is not null or pk.expires_at <= i.accepted_at))) as "keyHolds",
    k.agent_id as "agentId",
    i.environment = t.environment
      -- A second decision is bound exactly if its pending proof is.
      and (i.bound = (k.agent_id is not null) or i.approves is not null)
      and i.accepted_at <= clock_timestamp() + interval '1 second'
      and exists (select from svc.policy_activation a
        where a.active_from <= i.accepted_at and a.digest = coalesce((select s.base
          from svc.overlay_set s where s.digest = i.policy_digest and s.tenant_no = i.tenant_no
          limit 1), i.policy_digest)
          -- The commit of an activation may wait for minutes for a synchronous standby that hangs. Meanwhile,
          -- engines accept under the old set.
          and not exists (select from svc.policy_activation later
            where (later.active_from, later.activation_id) > (a.active_from, a.activation_id)
              and later.active_from <= i.accepted_at - interval '10 minutes')) as "pinsHold"
  from (select tenant_no, key_no, bound, environment, policy_digest, accepted_at, approves,
      ${packIds(tx)} as ids
    from svc.intake where proof_id = any(${arrayOf(proofIds)}::uuid[])
    group by tenant_no, key_no, bound, environment, policy_digest, accepted_at, approves) i
  join svc.tenant t using (tenant_no)
  join svc.lane l on l.environment = t.environment
  left join svc.api_key k on k.key_no = i.key_no and k.tenant_no = i.tenant_no`;

const gatesIn = (rows: readonly GateRow[]): Map<string, Gate> =>
  new Map(
    rows.flatMap(({ ids, ...gate }) => unpackIds(ids).map((proofId) => [proofId, gate] as const)),
  );

/** Rejects claimed admissions and releases their deduplication keys. */
export async function storeRejections(
  tx: Transaction,
  refusals: { proofId: string; code: string; detail: string }[],
): Promise<void> {
  if (refusals.length === 0) return;
  const ids = refusals.map(({ proofId }) => proofId);
  await tx`
    insert into svc.refusal (proof_id, code, detail)
    select * from unnest(${ids}::uuid[], ${refusals.map(({ code }) => code)}::text[],
      ${refusals.map(({ detail }) => detail)}::text[])`;
  await tx`update svc.intake set refused = true where proof_id = any(${ids}::uuid[])`;
}

export interface PendingPlace {
  acceptedAt: Date;
  proofId: string;
  tenantNo: number;
}

/**
 * Pending admissions accepted more than `ms` milliseconds ago, oldest first, from `after` on, so
 * that callers can skip admissions that cannot be committed. Includes admissions accepted more than
 * a day in the future: `claimPending` claims these, so that they are rejected. Excludes pending
 * chunks, which have leases.
 */
export function pendingOlderThan(
  sql: Db,
  ms: number,
  limit: number,
  after: PendingPlace | null = null,
): Promise<PendingPlace[]> {
  return sql<PendingPlace[]>`
    select proof_id as "proofId", accepted_at as "acceptedAt",
      (select tenant_no from svc.intake i where i.proof_id = p.proof_id) as "tenantNo"
    from svc.intake_pending p
    where (accepted_at < now() - ${`${ms} milliseconds`}::interval
        or accepted_at > now() + interval '1 day')
      and (accepted_at, proof_id) > (${after?.acceptedAt ?? new Date(0)}::timestamptz,
        ${after?.proofId ?? '0'.repeat(32)}::uuid)
    order by accepted_at, proof_id limit ${limit}`;
}

/** Whether anything is pending that the requeue may have to retry. */
export const isAnythingPending = (sql: Db): Promise<boolean> =>
  valueOf(sql`
    select exists (select from svc.intake_pending) or exists (select from svc.revocation_pending)
      or exists (select from svc.chunk_pending) or exists (select from svc.batch_watch)`);

/** How many admissions of all tenants are pending; counting stops at `most`. */
export const pendingDepth = (sql: Db, most: number): Promise<number> =>
  valueOf(sql`select svc.pending_depth(${most})`);
