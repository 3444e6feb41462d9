import { arrayOf, bytesOf, valuesOf } from '../db/columns.js';
import { isNotCombined, PolicyChangedError, PolicyMissingError } from '../db/errors.js';
import {
  asTenants,
  type Db,
  pipeline,
  type Pool,
  scopeOf,
  type Transaction,
} from '../db/transaction.js';
import type { RunPlace } from './references.js';

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
  /** The number of the caller's API key. Revoking the key also rejects its pending admissions. */
  keyNo: number | null;
  /** The run of the request, and the number of the request in it; null for a request in no run. */
  run: RunPlace | null;
  /** The operator's policy set that must be in force at acceptance; absent when the request depends on no set. */
  policyDigest?: Buffer;
}

export type IntakeOutcome =
  | { outcome: 'accepted'; proofId: string }
  | { outcome: 'repeat'; proofId: string }
  /** `run_seq_taken`: another request of the run has this number. */
  | { outcome: 'idempotency_conflict' | 'run_seq_taken' };

/**
 * Stores admissions: the intake rows, their pending rows and the idempotency keys. If no item has an
 * idempotency key, one statement stores the new admissions, and a second transaction handles the other items.
 * The database sets the time and the policy digest. The deduplication key is (tenant, request type,
 * request hash); a repeat returns the first admission.
 *
 * @param lockTimeoutMs longest wait, from this call on, for a concurrent transaction with the same
 *   admission; the connection's setting when absent. A timeout throws an error for which `isLockTimeout` is true.
 * @throws PolicyMissingError when no policy set is active
 * @throws PolicyChangedError when an item's `policyDigest` is not in force
 * @throws an error for which `isUnavailable` is true
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

/** Stores the admissions that are new, in one statement. Returns their proof ids. */
function insertAll(
  sql: Pool,
  items: readonly IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<Set<string>> {
  const rows = [...items].sort(byUniqueKeys);
  const tenants = rows.map(({ tenantNo }) => tenantNo);
  return repeatedWithOverlay(() =>
    storeAdmissions(sql, rows, {
      scope: scopeOf(tenants),
      lockMs: lockTimeoutMs === undefined ? null : String(lockTimeoutMs()),
      singly: true,
    }),
  );
}

const MAX_OVERLAY_ATTEMPTS = 3;

/**
 * Runs a transaction that stores admissions, and repeats it if the tenant activates an overlay
 * meanwhile.
 */
export async function repeatedWithOverlay<T>(store: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await store();
    } catch (error) {
      if (!isNotCombined(error) || attempt === MAX_OVERLAY_ATTEMPTS) throw error;
    }
  }
}

/** Sets the longest wait for a lock; without `lockTimeoutMs`, the setting of the connection stays. */
const limitLocks = (tx: Transaction, lockTimeoutMs?: () => number) =>
  lockTimeoutMs === undefined
    ? tx`select`
    : tx`select set_config('lock_timeout', ${String(lockTimeoutMs())}, true)`;

/**
 * Other requests have the run numbers of these items. The error rolls the transaction back, which frees the items'
 * idempotency keys.
 */
class NumbersTakenError extends Error {
  constructor(readonly items: ReadonlySet<IntakeItem>) {
    super('run_seq_taken');
  }
}

async function acceptSome(
  sql: Pool,
  items: IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<IntakeOutcome[]> {
  try {
    return await repeatedWithOverlay(() =>
      asTenants(
        sql,
        items.map((item) => item.tenantNo),
        (tx) => acceptIn(tx, items, lockTimeoutMs),
        async (tx) => void (await limitLocks(tx, lockTimeoutMs)),
      ),
    );
  } catch (error) {
    if (!(error instanceof NumbersTakenError)) throw error;
    const others = items.filter((item) => !error.items.has(item));
    const outcomes = others.length === 0 ? [] : await acceptSome(sql, others, lockTimeoutMs);
    const found = new Map(others.map((item, at) => [item, outcomes[at]]));
    return items.map((item) => found.get(item) ?? { outcome: 'run_seq_taken' });
  }
}

// Concurrent groups may share deduplication keys and run numbers. All groups insert in the same order, so that
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

async function acceptIn(
  tx: Transaction,
  items: IntakeItem[],
  lockTimeoutMs?: () => number,
): Promise<IntakeOutcome[]> {
  const conflicts = await bindIdempotencyKeys(tx, items);
  const open = items.filter((item) => !conflicts.has(item)).sort(byUniqueKeys);
  const admissions = await insertOrFind(tx, open, async (rows) => {
    // Inserting a deduplication key can wait for a lock, so the acceptance time is taken afterwards.
    const [, policy] = await pipeline(limitLocks(tx, lockTimeoutMs), pinPolicy(tx));
    if (rows.some(({ policyDigest }) => policyDigest?.equals(policy.digest) === false)) {
      throw new PolicyChangedError('a request was translated for another policy set');
    }
    return storeAdmissions(tx, rows, { policy, singly: true });
  });
  const taken = open.filter((item) => admissions.get(item) === 'run_seq_taken');
  const keyed = taken.filter(({ idempotencyKey }) => idempotencyKey !== null);
  if (keyed.length > 0) throw new NumbersTakenError(new Set(keyed));
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
 * Finds or inserts the admission of each row. Rows with equal deduplication keys get the same admission.
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
    // The conflict is then on the index of proof ids, so a further attempt would fail too.
    if ((attempts += 1) > MAX_ATTEMPTS)
      throw new Error('an admission conflicts with another admission, which was not found');
    const inserted = await insert(open);
    const repeats = open.filter(({ proofId }) => !inserted.has(proofId));
    const firsts = repeats.length > 0 ? await findExistingProofIds(tx, repeats) : [];
    const existing = new Map(repeats.map((row, at) => [row, firsts[at] ?? null]));
    const conflicts = await withTakenPlaces(
      tx,
      repeats.filter((row) => existing.get(row) === null),
    );
    for (const row of open) {
      const proofId = existing.get(row);
      if (proofId === undefined) admissions.set(row, { proofId: row.proofId, isNew: true });
      else if (proofId !== null) admissions.set(row, { proofId, isNew: false });
      else if (conflicts.has(row)) admissions.set(row, 'run_seq_taken');
    }
    // Tries the row again if the earlier admission was rejected meanwhile, which released its deduplication key.
    open = open.filter((row) => !admissions.has(row));
  }
  return admissions;
}

/** The rows whose number in their run another request uses. */
async function withTakenPlaces<R extends IntakeRow>(tx: Db, rows: readonly R[]): Promise<Set<R>> {
  const inRuns = rows.flatMap((row) => (row.run === null ? [] : [{ ...row.run, row }]));
  if (inRuns.length === 0) return new Set();
  const keys = inRuns.map(({ runKey }) => Buffer.from(runKey, 'hex'));
  // Binary keys: under row-level security, PostgreSQL uses no index for a condition with `decode`.
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
 * The acceptance time, and the policy set in force at that time, which decides the admission.
 *
 * @throws PolicyMissingError when no policy set is active
 */
export async function pinPolicy(tx: Transaction): Promise<PinnedPolicy> {
  const [policy] = await tx<PinnedPolicy[]>`
    select digest, at from svc.policy_in_force()`;
  if (policy === undefined) throw new PolicyMissingError('no policy set is active');
  return policy;
}

export type IntakeRow = Omit<IntakeItem, 'idempotencyKey'>;

interface StoreOptions {
  /** Default: the set in force. Without a set in force, or if a `policyDigest` is not in force, nothing is stored. */
  policy?: PinnedPolicy;
  /** Tenants whose rows the statement sees; default: the setting of the transaction. */
  scope?: string | null;
  /** Longest wait for a lock; default: the setting of the transaction. */
  lockMs?: string | null;
  /** Whether the admissions are pending one by one, not in a chunk of a batch. */
  singly: boolean;
}

/** Stores the admissions whose deduplication key is free, and returns their proof ids. */
export async function storeAdmissions(
  sql: Db,
  items: readonly IntakeRow[],
  { policy, scope = null, lockMs = null, singly }: StoreOptions,
): Promise<Set<string>> {
  const packed = bytesOf(
    items.map(({ requestHash, seed, request }) => {
      if (requestHash.length !== 32 || seed.length !== 32)
        throw new RangeError('hash and seed must have 32 bytes');
      return Buffer.concat([requestHash, seed, request]);
    }),
  );
  // The inserting statement checks the policy set, because a scheduled set may come into force at any time.
  const required = policy ? [] : items.flatMap(({ policyDigest }) => policyDigest ?? []);
  const isAny = required.length === 0;
  const pinned = isAny
    ? sql`${policy?.digest ?? null}, ${policy?.at ?? null}`
    : sql`p.digest, p.at`;
  const source = isAny
    ? sql``
    : sql`from svc.policy_in_force() p where p.digest = all(${byteas(sql, required)})`;
  const stored = await sql<{ id: string }[]>`
    select svc.store_admissions(${scope}, ${lockMs}, ${singly}, ${pinned},
      ${arrayOf(items.map(({ proofId }) => proofId))}::uuid[],
      ${arrayOf(items.map(({ tenantNo }) => tenantNo))}::integer[],
      ${arrayOf(items.map(({ lane }) => lane))}::smallint[], ${packed.bytes}::bytea,
      ${packed.starts}::integer[], ${packed.lengths}::integer[],
      ${items.map(({ fixtureRef }) => fixtureRef)}::text[],
      ${items.map(({ keyNo }) => keyNo)}::integer[],
      ${items.map(({ run }) => run?.runKey ?? null)}::text[],
      ${items.map(({ run }) => run?.seq ?? null)}::bigint[],
      ${arrayOf(items.map(({ run }) => run?.closes ?? 'NULL'))}::boolean[]) as id ${source}`;
  return new Set(stored.map(({ id }) => id));
}

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
function findExistingProofIds(
  tx: Db,
  items: readonly Pick<IntakeRow, 'tenantNo' | 'lane' | 'requestHash'>[],
): Promise<(string | null)[]> {
  const hashes = items.map((item) => item.requestHash);
  return valuesOf(tx`
    select i.proof_id
    from unnest(${items.map((item) => item.tenantNo)}::int[],
      ${items.map((item) => item.lane)}::smallint[], ${byteas(tx, hashes)})
      with ordinality as asked(tenant_no, lane, request_hash, n)
    left join svc.intake i on i.tenant_no = asked.tenant_no and i.lane = asked.lane
      and i.request_hash = asked.request_hash and not i.refused and i.approves is null
    order by asked.n`);
}
