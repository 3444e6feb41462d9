import type { Effect } from '#protocol/status';
import { arrayOf, bytesOf } from '../db/columns.js';
import { PolicyMissingError } from '../db/errors.js';
import {
  asTenants,
  type Db,
  type Fragment,
  inOneRoundTrip,
  pipeline,
  type Pool,
  scopeTo,
  type Transaction,
} from '../db/transaction.js';
import { repeatedWithOverlay } from './overlays.js';
import type { RunPlace } from './runs.js';
import { UNLIMITED, type PinnedIntake, type Validity } from '../proofs/rebuild-aep.js';

/** The request type: 1 is execute, 2 is agent. */
export type Lane = 1 | 2;

export interface IntakeItem {
  proofId: string;
  tenantNo: number;
  lane: Lane;
  request: Uint8Array;
  requestHash: Uint8Array;
  seed: Uint8Array;
  fixtureRef: string | null;
  idempotencyKey: string | null;
  /** The caller's API key: revoking it also rejects its pending admissions. */
  keyNo: number | null;
  /** Null outside of runs. */
  run: RunPlace | null;
}

export type IntakeOutcome =
  | { outcome: 'accepted'; proofId: string }
  | { outcome: 'repeat'; proofId: string }
  /** `run_seq_taken`: another request of the run has this number. */
  | { outcome: 'idempotency_conflict' | 'run_seq_taken' };

/**
 * Stores admissions: the intake rows, their queue entries and the idempotency keys. New admissions
 * without such keys take one transaction; the others take a second one. The database sets the time and the policy digest. The deduplication key is (tenant, request type,
 * request hash); a repeat returns the first admission.
 *
 * @param lockTimeoutMs longest wait, from this call on, for a concurrent transaction with the same
 * admission; the connection's setting when absent. `isLockTimeout` holds for its error.
 * @throws PolicyMissingError when no policy set is active
 * @throws DatabaseUnavailableError
 */
export async function acceptIntake(
  sql: Pool,
  items: IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<IntakeOutcome[]> {
  const isKeyed = items.some((item) => item.idempotencyKey !== null);
  const inserted = isKeyed ? new Set<string>() : await insertAll(sql, items, lockTimeoutMs);
  const others = items.filter(({ proofId }) => !inserted.has(proofId));
  const outcomes = others.length === 0 ? [] : await acceptSome(sql, others, lockTimeoutMs);
  const found = new Map(others.map((item, at) => [item, outcomes[at]]));
  return items.map(
    (item): IntakeOutcome => found.get(item) ?? { outcome: 'accepted', proofId: item.proofId },
  );
}

/** Stores the admissions that are new, in one round trip. Returns their proof ids. */
async function insertAll(
  sql: Pool,
  items: readonly IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<Set<string>> {
  const rows = [...items].sort(byUniqueKeys);
  const tenants = rows.map(({ tenantNo }) => tenantNo);
  const [, , , inserted] = await repeatedWithOverlay(() =>
    inOneRoundTrip(
      sql,
      (tx) =>
        [
          tx`begin`,
          scopeTo(tx, tenants),
          limitLocks(tx, lockTimeoutMs),
          insertingIntake(tx, rows, policyInForce(tx)),
          insertPending(tx, rows),
        ] as const,
    ),
  );
  return new Set(inserted.map(({ id }) => id));
}

/** Sets the longest wait for a lock; without one the connection's setting stays. */
const limitLocks = (tx: Transaction, lockTimeoutMs?: () => number) =>
  lockTimeoutMs === undefined
    ? tx`select`
    : tx`select set_config('lock_timeout', ${String(lockTimeoutMs())}, true)`;

function acceptSome(
  sql: Pool,
  items: IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<IntakeOutcome[]> {
  return repeatedWithOverlay(() =>
    asTenants(
      sql,
      items.map((item) => item.tenantNo),
      (tx) => accept(tx, items, lockTimeoutMs),
      async (tx) => void (await limitLocks(tx, lockTimeoutMs)),
    ),
  );
}

// Concurrent groups may share deduplication keys and run numbers. All insert in one order, so that
// waits for a unique key cannot deadlock: requests with equal deduplication keys have equal run numbers.
export const byUniqueKeys = (a: IntakeRow, b: IntakeRow): number =>
  a.tenantNo - b.tenantNo ||
  a.lane - b.lane ||
  comparePlaces(a.run, b.run) ||
  Buffer.compare(a.requestHash, b.requestHash);

function comparePlaces(a: RunPlace | null, b: RunPlace | null): number {
  if (a === null || b === null) return Number(a !== null) - Number(b !== null);
  return a.runKey === b.runKey ? a.seq - b.seq : a.runKey < b.runKey ? -1 : 1;
}

async function accept(
  tx: Transaction,
  items: IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<IntakeOutcome[]> {
  const conflicts = await bindIdempotencyKeys(tx, items);
  const open = items.filter((item) => !conflicts.has(item)).sort(byUniqueKeys);
  const admissions = await insertOrFind(tx, open, async (rows) => {
    // Inserting a deduplication key can wait for a lock, so the acceptance time is taken afterwards.
    const [, policy] = await pipeline(limitLocks(tx, lockTimeoutMs), pinPolicy(tx));
    const [inserted] = await pipeline(insertIntake(tx, rows, policy), insertPending(tx, rows));
    return inserted;
  });
  return items.map((item) => {
    const found = admissions.get(item);
    if (found === undefined) return { outcome: 'idempotency_conflict' };
    if (found === 'run_seq_taken') return { outcome: found };
    return { outcome: found.isNew ? 'accepted' : 'repeat', proofId: found.proofId };
  });
}

const MAX_ATTEMPTS = 20;

export type FoundAdmission = { proofId: string; isNew: boolean } | 'run_seq_taken';

/**
 * Finds or inserts the admission of each row: of equal deduplication keys the first counts.
 *
 * @param insert inserts rows whose key is free, and returns their proof ids
 */
export async function insertOrFind<R extends IntakeRow>(
  tx: Transaction,
  rows: readonly R[],
  insert: (rows: readonly R[]) => Promise<Set<string>>,
): Promise<Map<R, FoundAdmission>> {
  const admissions = new Map<R, FoundAdmission>();
  let attempts = 0;
  for (let open = rows; open.length > 0;) {
    // Another attempt does not resolve a conflict on the index of proof ids.
    if ((attempts += 1) > MAX_ATTEMPTS)
      throw new Error('an admission conflicts with an unknown one');
    const inserted = await insert(open);
    const repeats = open.filter(({ proofId }) => !inserted.has(proofId));
    const firsts = repeats.length > 0 ? await findExistingProofIds(tx, repeats) : [];
    const existing = new Map(repeats.map((row, at) => [row, firsts[at] ?? null]));
    const conflicts = await withTakenPlaces(
      tx,
      repeats.filter((row) => existing.get(row) === null),
    );
    // Tries again if the earlier admission was rejected meanwhile and released its key.
    open = open.filter((row) => {
      const proofId = existing.get(row) ?? null;
      const isNew = !existing.has(row);
      if (conflicts.has(row)) {
        admissions.set(row, 'run_seq_taken');
        return false;
      }
      if (!isNew && proofId === null) return true;
      admissions.set(row, { proofId: proofId ?? row.proofId, isNew });
      return false;
    });
  }
  return admissions;
}

/** The rows whose run number belongs to another request. */
async function withTakenPlaces<R extends IntakeRow>(tx: Db, rows: readonly R[]): Promise<Set<R>> {
  const inRuns = rows.flatMap((row) => (row.run === null ? [] : [{ ...row.run, row }]));
  if (inRuns.length === 0) return new Set();
  const keys = inRuns.map(({ runKey }) => Buffer.from(runKey, 'hex'));
  // Row-level security keeps a condition with `decode` away from the index: all runs of the tenant were read.
  const taken = await tx<{ n: number }[]>`
    select asked.n::integer - 1 as n
    from unnest(${inRuns.map(({ row }) => row.tenantNo)}::int[], ${byteas(tx, keys)},
      ${inRuns.map(({ seq }) => seq)}::bigint[]) with ordinality as asked(tenant_no, run_key, seq, n)
    where exists (select from svc.intake i where i.tenant_no = asked.tenant_no
      and i.run_key = asked.run_key and i.run_seq = asked.seq
      and i.run_key is not null and not i.refused)`;
  return new Set(taken.map(({ n }) => inRuns[n]!.row));
}

const BYTEA_ARRAY = 1001;

/** A bytea[] parameter. The driver would send a list of buffers as a single bytea. */
function byteas(tx: Db, values: Uint8Array[]) {
  return tx.array(values as Buffer[], BYTEA_ARRAY);
}

/** A request with an idempotency key, which is bound to the hash of the request. */
interface Keyed {
  tenantNo: number;
  lane: number;
  idempotencyKey: string | null;
  requestHash: Uint8Array;
}

/** Binds idempotency keys to hashes; returns the items whose key is bound to another hash. */
export async function bindIdempotencyKeys<K extends Keyed>(
  tx: Transaction,
  items: readonly K[],
): Promise<Set<K>> {
  const keyed = items
    .flatMap((item) => (item.idempotencyKey === null ? [] : { item, key: item.idempotencyKey }))
    .sort(
      ({ item: a, key: x }, { item: b, key: y }) =>
        a.tenantNo - b.tenantNo ||
        a.lane - b.lane ||
        Buffer.compare(Buffer.from(x), Buffer.from(y)),
    );
  if (keyed.length === 0) return new Set();
  const tenants = keyed.map(({ item }) => item.tenantNo);
  const lanes = keyed.map(({ item }) => item.lane);
  const keys = keyed.map(({ key }) => key);
  const hashes = keyed.map(({ item }) => item.requestHash);
  await tx`
    insert into svc.idempotency_key (tenant_no, lane, key, request_hash)
    select * from unnest(${tenants}::int[], ${lanes}::smallint[], ${keys}::text[],
      ${byteas(tx, hashes)})
    on conflict do nothing`;
  const bound = await tx<{ hash: Buffer }[]>`
    select k.request_hash as hash
    from unnest(${tenants}::int[], ${lanes}::smallint[], ${keys}::text[])
      with ordinality as asked(tenant_no, lane, key, n)
    join svc.idempotency_key k using (tenant_no, lane, key)
    order by asked.n`;
  const conflicts = keyed.filter(({ item }, i) => !bound[i]?.hash.equals(item.requestHash));
  return new Set(conflicts.map(({ item }) => item));
}

export interface PinnedPolicy {
  at: Date;
  digest: Buffer;
}

/**
 * The time, and the policy in force then: it decides, so acceptance has the same time. Not the
 * transaction's start, which may be long before when it waited for a lock.
 */
const policyInForce = (tx: Db): Fragment => tx`
  select a.digest, t.at
  from (select date_trunc('milliseconds', clock_timestamp()) as at) t
  cross join lateral (select digest from svc.policy_activation where active_from <= t.at
    order by active_from desc, activation_id desc limit 1) a`;

/** @throws PolicyMissingError when no policy set is active */
export async function pinPolicy(tx: Transaction): Promise<PinnedPolicy> {
  const [policy] = await tx<PinnedPolicy[]>`${policyInForce(tx)}`;
  if (policy === undefined) throw new PolicyMissingError('no policy set is active');
  return policy;
}

/**
 * The set that decides for `svc.tenant t`, from `policy`: with the tenant's overlay if one is active. Null,
 * which acceptance rejects, if no set combines both.
 */
export const digestOfTenant = (sql: Db) => sql`
  case when t.overlay is null then policy.digest else (select o.digest from svc.overlay_set o
    where o.tenant_no = t.tenant_no and o.overlay = t.overlay and o.base = policy.digest) end`;

export type IntakeRow = Omit<IntakeItem, 'idempotencyKey'>;

/** Inserts the admissions whose deduplication key is free, and returns their proof ids. */
export async function insertIntake(
  tx: Transaction,
  items: readonly IntakeRow[],
  { at, digest }: PinnedPolicy,
): Promise<Set<string>> {
  const policy = tx`select ${at}::timestamptz as at, ${digest}::bytea as digest`;
  const inserted = await insertingIntake(tx, items, policy);
  return new Set(inserted.map(({ id }) => id));
}

/** @param policy selects `at` and `digest`; without a row nothing is inserted */
function insertingIntake(tx: Transaction, items: readonly IntakeRow[], policy: Fragment) {
  const requests = bytesOf(items.map(({ request }) => request));
  const hashes = bytesOf(items.map(({ requestHash }) => requestHash));
  const seeds = bytesOf(items.map(({ seed }) => seed));
  return tx<{ id: string }[]>`
    with policy as materialized (${policy})
    insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
      accepted_at, seed, policy_digest, fixture_hash, validity, key_no, bound, run_key, run_seq,
      run_closes)
    select i.proof_id, i.tenant_no, i.lane, t.environment,
      substring(packed.requests from i.request_start for i.request_length),
      substring(packed.hashes from i.hash_start for i.hash_length), policy.at,
      substring(packed.seeds from i.seed_start for i.seed_length),
      ${digestOfTenant(tx)},
      f.fixture_hash, ${pinnedValidity(tx)}, i.key_no, k.agent_id is not null,
      decode(i.run_key, 'hex'), i.run_seq, i.run_closes
    from policy cross join (select ${requests.bytes}::bytea as requests,
      ${hashes.bytes}::bytea as hashes, ${seeds.bytes}::bytea as seeds) packed
    cross join unnest(${arrayOf(items.map(({ proofId }) => proofId))}::uuid[],
      ${arrayOf(items.map(({ tenantNo }) => tenantNo))}::integer[],
      ${arrayOf(items.map(({ lane }) => lane))}::smallint[],
      ${requests.starts}::integer[], ${requests.lengths}::integer[],
      ${hashes.starts}::integer[], ${hashes.lengths}::integer[],
      ${seeds.starts}::integer[], ${seeds.lengths}::integer[],
      ${items.map(({ fixtureRef }) => fixtureRef)}::text[],
      ${items.map(({ keyNo }) => keyNo)}::integer[], ${items.map(({ run }) => run?.runKey ?? null)}::text[],
      ${items.map(({ run }) => run?.seq ?? null)}::bigint[],
      ${arrayOf(items.map(({ run }) => run?.closes ?? 'NULL'))}::boolean[])
      with ordinality as i(proof_id, tenant_no, lane, request_start, request_length, hash_start,
        hash_length, seed_start, seed_length, fixture_ref, key_no, run_key, run_seq, run_closes, n)
    join svc.tenant t using (tenant_no)
    left join svc.fixture f using (fixture_ref)
    left join svc.api_key k on k.key_no = i.key_no and k.tenant_no = i.tenant_no
    order by i.n
    -- The deduplication key, or the number in the run, is in use.
    on conflict do nothing
    returning proof_id as id`;
}

/**
 * A separate statement: the row check needs a visible intake row, and a statement does not see its
 * own inserts. Only ids inserted by this transaction are pending; a retry may contain earlier ids.
 */
export const insertPending = (tx: Transaction, items: readonly Pick<IntakeItem, 'proofId'>[]) => tx`
  insert into svc.intake_pending (proof_id, accepted_at)
  select proof_id, accepted_at from svc.intake
  where proof_id = any(${arrayOf(items.map(({ proofId }) => proofId))}::uuid[])
    and xmin = pg_current_xact_id()::xid`;

/** For each request of the tenant, the proof id of its admission, or null. */
export function findAdmitted(
  sql: Pool,
  tenantNo: number,
  requests: readonly { lane: Lane; requestHash: string }[],
): Promise<(string | null)[]> {
  const items = requests.map(({ lane, requestHash }) => ({
    tenantNo,
    lane,
    requestHash: Buffer.from(requestHash, 'hex'),
  }));
  return asTenants(sql, [tenantNo], (tx) => findExistingProofIds(tx, items));
}

/** For each item, the proof id that its deduplication key already has, or null. */
async function findExistingProofIds(
  tx: Db,
  items: readonly Pick<IntakeRow, 'tenantNo' | 'lane' | 'requestHash'>[],
): Promise<(string | null)[]> {
  const hashes = items.map((item) => item.requestHash);
  const rows = await tx<{ id: string | null }[]>`
    select i.proof_id as id
    from unnest(
      ${items.map((item) => item.tenantNo)}::int[],
      ${items.map((item) => item.lane)}::smallint[],
      ${byteas(tx, hashes)})
      with ordinality as asked(tenant_no, lane, request_hash, n)
    left join svc.intake i on i.tenant_no = asked.tenant_no and i.lane = asked.lane
      and i.request_hash = asked.request_hash and not i.refused and i.approves is null
    order by asked.n`;
  return rows.map(({ id }) => id);
}

/** The validity that an admission pins, from `svc.tenant t`; null when every validity is unlimited. */
export const pinnedValidity = (sql: Db) =>
  sql`nullif(t.validity, ${JSON.stringify(UNLIMITED)}::text::jsonb)`;

type SharedColumn = Exclude<keyof PinnedIntake, 'proofId' | 'request' | 'requestHash' | 'seed'>;
export type SharedRow = Omit<Pick<PinnedIntake, SharedColumn>, 'acceptedAt' | 'validity'> & {
  acceptedAt: Date;
  validity: Validity | null;
};

/** Columns of a SharedRow, from `svc.intake i join svc.tenant t`. */
export const sharedColumns = (sql: Db) => sql`
  i.tenant_no as "tenantNo", t.tenant_id as "tenantId", i.lane, i.environment,
  i.accepted_at as "acceptedAt", i.bound, i.policy_digest as "policyDigest",
  i.fixture_hash as "fixtureHash", i.validity, i.approval`;

export const sharedPins = ({ acceptedAt, validity, ...row }: SharedRow) => ({
  ...row,
  acceptedAt: acceptedAt.getTime(),
  validity: validity ?? UNLIMITED,
});

/** The pinned inputs of one of the tenant's admissions; null when unknown or erased. */
export function readPinnedIntake(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PinnedIntake | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<(SharedRow & Omit<PinnedIntake, SharedColumn>)[]>`
      select ${sharedColumns(tx)}, i.proof_id as "proofId", i.request,
        i.request_hash as "requestHash", i.seed
      from svc.intake i join svc.tenant t using (tenant_no)
      where i.proof_id = ${proofId}::uuid and i.tenant_no = ${tenantNo}
        and num_nulls(i.request, i.request_hash, i.seed) = 0`;
    return row === undefined ? null : { ...row, ...sharedPins(row) };
  });
}

/** The part of a parent proof that an envelope's validation may use. */
export interface Parent {
  effect: Effect;
  kind: 'action' | 'outcome';
}

/** The tenant's proofs with these ids; null for an unknown or erased proof, and for another tenant's. */
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
  const rows = await tx<(Omit<Parent, 'effect'> & { effect: Parent['effect'] | null })[]>`
    select e.effect, case when e.is_outcome then 'outcome' else 'action' end as kind
    from unnest(${asked.map(({ proofId }) => proofId)}::uuid[],
      ${asked.map(({ tenantNo }) => tenantNo)}::int[]) with ordinality as asked(proof_id, tenant_no, n)
    left join (select * from svc.log_entry where signature is not null) e using (proof_id, tenant_no)
    order by asked.n`;
  return rows.map(({ effect, kind }) => (effect === null ? null : { effect, kind }));
}
