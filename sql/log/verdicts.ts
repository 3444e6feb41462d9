import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind, Outcome } from '#protocol/status';
import { arrayOf, firstRow, inMs, valuesOf, type WithDates } from '../db/columns.js';
import type { Db, Transaction } from '../db/transaction.js';

/** The part of the log, from leaf 0, that has verdicts without a gap. */
export interface VerifiedPrefix {
  treeSize: number;
  /** The root that the verifier computed over the prefix. */
  root: Buffer;
  /** The compact range that gives the root: the perfect subtrees' hashes, 32 bytes each. */
  subtrees: Buffer;
  /** Hash chain over every key entry of the prefix, 32 bytes. */
  keysDigest: Buffer;
  verifiedAt: number;
  verdictId: number;
}

export interface NewVerdict {
  /** The verifier's resume state; null for a verdict on a single leaf. */
  prefix: { subtrees: Uint8Array; keysDigest: Uint8Array } | null;
  firstIndex: number;
  lastIndex: number;
  treeSize: number;
  root: Uint8Array;
  outcome: Outcome;
  expired: readonly ArtifactKind[];
  checks: unknown;
}

/** A verdict on one leaf, for the same tree as the verified prefix. */
export function verdictOn(
  leafIndex: number,
  { treeSize, root }: Pick<NewVerdict, 'treeSize' | 'root'>,
  found: Pick<NewVerdict, 'outcome' | 'expired' | 'checks'>,
): NewVerdict {
  return { prefix: null, firstIndex: leafIndex, lastIndex: leafIndex, treeSize, root, ...found };
}

export async function verifiedPrefix(sql: Db): Promise<VerifiedPrefix | null> {
  const [row] = await sql<PrefixRow[]>`${lastPrefix(sql)}`;
  return row === undefined ? null : inMs(row);
}

type PrefixRow = WithDates<VerifiedPrefix, 'verifiedAt'>;

const lastPrefix = (sql: Db) => sql`
  select last_index + 1 as "treeSize", root, subtrees, keys_digest as "keysDigest",
    verified_at as "verifiedAt", verdict_id as "verdictId"
  from svc.verdict where frontier order by last_index desc limit 1`;

/** The number of leaves in the log, and its verified prefix, at the same moment. */
export async function logAndPrefix(sql: Db) {
  const [{ logSize, ...row }] = await sql<[{ logSize: number } & (PrefixRow | { treeSize: null })]>`
    select h.tree_size as "logSize", v.*
    from svc.log_head h left join (${lastPrefix(sql)}) v on true`;
  return { logSize, prefix: row.treeSize === null ? null : inMs(row) };
}

/** The effective verdict on each leaf: among all rows that cover it, the latest for the largest log. */
export async function verdictsForLeaves(sql: Db, leaves: readonly number[]) {
  const histories = await verdictHistories(sql, leaves);
  return new Map([...histories].map(([leaf, history]) => [leaf, history.at(-1)!]));
}

/** Every verdict that covers each leaf, oldest first; leaves without a verdict are absent. */
export async function verdictHistories(
  sql: Db,
  leaves: readonly number[],
): Promise<Map<number, VerdictInHistory[]>> {
  const rows = await sql<(WithDates<VerdictInHistory, 'verifiedAt'> & { leaf: number })[]>`
    select asked.leaf, verdict_id as "verdictId", frontier, tree_size as "treeSize", outcome, expired,
      verified_at as "verifiedAt",
      jsonb_path_query_array(checks, '$[*] ? (@.result == "fail").name') as "failedChecks"
    from unnest(${[...new Set(leaves)]}::bigint[]) as asked(leaf)
    cross join lateral (
      (select * from svc.verdict where frontier and last_index >= asked.leaf
        order by last_index limit 1)
      union all
      (select * from svc.verdict where not frontier and first_index = asked.leaf)) as v
    where v.first_index <= asked.leaf
    order by v.tree_size, v.verdict_id`;
  const histories = new Map<number, VerdictInHistory[]>();
  for (const { leaf, ...row } of rows) {
    histories.set(leaf, [...(histories.get(leaf) ?? []), inMs(row)]);
  }
  return histories;
}

/**
 * Leaves below `size`, ascending, that once failed for a reason other than a compromised key. Some now
 * pass again. Ignores rows without checks: earlier versions wrote them to repeat an outcome.
 */
export const failedOtherwise = (sql: Db, size: number): Promise<number[]> =>
  valuesOf(sql`
    select distinct first_index from svc.verdict
    where not frontier and outcome = 'fail' and ${failedOf(sql)} <> ${voidedOf(sql)} and checks <> '[]'
      and first_index < ${size} order by first_index`);

/**
 * The failed checks of a verdict, which equal `voidedOf` if a proof fails only because its key is compromised.
 */
export const failedOf = (sql: Db) => sql`
  jsonb_path_query_array(checks, '$[*] ? (@.result == "fail")')`;
// Must equal the text that the verifier writes, so that a query can use the index verdict_failed_otherwise.
export const voidedOf = (sql: Db) => sql`
  '[{"name": "signing_key", "result": "fail", "detail": "by the log the key is compromised at this position"}]'`;

/**
 * Inserts verdicts. Only for the verifier's role.
 *
 * @param at the time of verification, epoch milliseconds of the database; the transaction's start by default
 */
export async function insertVerdicts(sql: Db, verdicts: NewVerdict[], at?: number): Promise<void> {
  if (verdicts.length === 0) return;
  const rows = verdicts.map(({ prefix, ...verdict }) => ({
    frontier: prefix !== null,
    first_index: verdict.firstIndex,
    last_index: verdict.lastIndex,
    tree_size: verdict.treeSize,
    root: verdict.root,
    subtrees: prefix?.subtrees ?? null,
    keys_digest: prefix?.keysDigest ?? null,
    outcome: verdict.outcome,
    expired: verdict.expired,
    checks: sql.json(verdict.checks as never),
    ...(at !== undefined && { verified_at: new Date(at) }),
  }));
  await sql`insert into svc.verdict ${sql(rows)}`;
}

export interface Expiry {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  expiresAt: number;
}

/** Stores expiries, so that the expiry scan need not read the registry. */
export async function insertExpiries(sql: Db, expiries: Expiry[]): Promise<void> {
  if (expiries.length === 0) return;
  await sql`
    insert into svc.expiry (leaf_index, artifact_kind, expires_at)
    select leaf, kind, to_timestamp(at / 1000.0)
    from unnest(${arrayOf(expiries.map(({ leafIndex }) => leafIndex))}::bigint[],
      ${arrayOf(expiries.map(({ kind }) => kind))}::text[],
      ${arrayOf(expiries.map(({ expiresAt }) => expiresAt))}::bigint[]) as added(leaf, kind, at)
    on conflict do nothing`;
}

export function kindsByLeaf(
  expiries: readonly Omit<Expiry, 'expiresAt'>[],
): Map<number, ArtifactKind[]> {
  const kinds = new Map<number, ArtifactKind[]>();
  for (const { leafIndex, kind } of expiries) {
    kinds.set(leafIndex, [...(kinds.get(leafIndex) ?? []), kind]);
  }
  return kinds;
}

/**
 * Deletes and returns expiries that are due at `now`, in epoch milliseconds. The caller must write the verdicts about
 * these expiries in the same transaction.
 */
export function takeDueExpiries(tx: Transaction, now: number, belowIndex: number, limit: number) {
  return tx<Omit<Expiry, 'expiresAt'>[]>`
    delete from svc.expiry where (leaf_index, artifact_kind) in (
      select leaf_index, artifact_kind from svc.expiry
      where expires_at <= ${new Date(now)} and leaf_index < ${belowIndex}
      order by expires_at limit ${limit} for update skip locked)
    returning leaf_index as "leafIndex", artifact_kind as kind`;
}

export interface ScrubPosition {
  nextIndex: number;
  /** Leaves [nextIndex, urgentUntil) are urgent: they are checked first, newest first. 0 without urgent leaves. */
  urgentUntil: number;
  /** Number of times that leaves were made urgent. */
  epoch: number;
}

/** The scrubber's position; null if its row, which the migration inserted, was deleted. */
export const scrubPosition = (sql: Db) =>
  firstRow(sql<ScrubPosition[]>`
    select next_index as "nextIndex", urgent_until as "urgentUntil", epoch from svc.scrub`);

export async function advanceScrubCursor(
  sql: Db,
  { nextIndex, urgentUntil }: Omit<ScrubPosition, 'epoch'>,
): Promise<void> {
  await sql`update svc.scrub set next_index = ${nextIndex}, urgent_until = ${urgentUntil}`;
}

/** Makes the scrubber check the leaves of [from, until) first: their verdicts may be wrong. */
export async function scrubUrgently(sql: Db, from: number, until: number): Promise<void> {
  await sql`
    update svc.scrub set
      next_index = case when urgent_until > 0 then least(next_index, ${from}) else ${from} end,
      urgent_until = greatest(urgent_until, ${until}),
      epoch = epoch + 1`;
}

/**
 * Whether an erasure or an expiry is due by the database's clock, and the clock's time in epoch
 * milliseconds. An erasure or expiry that became due before that time is included.
 */
export async function dueAtDatabaseTime(sql: Db): Promise<{ now: number; isDue: boolean }> {
  const [row] = await sql<[{ now: Date; isDue: boolean }]>`
    select date_trunc('milliseconds', now()) as now, ${isAnythingDue(sql)} as "isDue"`;
  return { now: row.now.getTime(), isDue: row.isDue };
}

const isAnythingDue = (sql: Db) => sql`
  (exists (select from svc.erasure_due)
    or exists (select from svc.expiry where expires_at <= now())
    or exists (select from svc.share_due where expires_at <= now()))`;

/**
 * Shows whether the verifier has work: it can skip passes while `state` is not null and stays the same. `state` changes
 * with the log, the verdicts and the leaves of `scrubUrgently`, and is null while an erasure or an expiry is due.
 * `isUrgent`: the scrubber has not yet checked all of these leaves. Returns null if the row of the log's head or of the
 * scrubber was deleted.
 */
export async function verifierWork(sql: Db) {
  const [row] = await sql<{ state: string; isUrgent: boolean; isDue: boolean }[]>`
    select concat_ws(' ', h.tree_size, s.epoch, s.urgent_until,
      (select verdict_id from svc.verdict order by verdict_id desc limit 1)) as state,
      s.urgent_until > 0 as "isUrgent",
      ${isAnythingDue(sql)} as "isDue"
    from svc.log_head h, svc.scrub s`;
  if (row === undefined) return null;
  return { state: row.isDue ? null : row.state, isUrgent: row.isUrgent };
}

/**
 * Records that an expiry scan which began at `beganAt`, epoch milliseconds of the database, has
 * finished. With several verifiers the latest scan counts. A recorded time in the future is
 * replaced, because the database clock was set back and no scan covered that time. Records nothing while this database
 * has an earlier expiry, which a failover during the scan can bring back.
 */
export async function recordExpiryScan(sql: Db, beganAt: number): Promise<void> {
  const began = sql`${new Date(beganAt)}::timestamptz`;
  await sql`
    update svc.upkeep set done_at = case when done_at <= clock_timestamp() + interval '1 second'
      then greatest(done_at, ${began}) else ${began} end
    where not exists (select from svc.expiry where expires_at <= ${began})
      and not exists (select from svc.share_due where expires_at <= ${began})`;
}

/** The start of the last finished expiry scan, in epoch milliseconds; null without a scan. */
export async function expiryScanDoneAt(sql: Db): Promise<number | null> {
  const [row] = await sql<{ at: Date | null }[]>`select done_at as at from svc.upkeep`;
  return row?.at?.getTime() ?? null;
}

export async function erasedAmong(sql: Db, proofIds: readonly string[]): Promise<Set<string>> {
  if (proofIds.length === 0) return new Set();
  const erased = sql`
    select proof_id from svc.erasure
    where proof_id = any(${[...proofIds]}::uuid[]) and leaf_index is not null`;
  return new Set(await valuesOf<string>(erased));
}

/**
 * Removes leaves below `belowIndex` from the queue of erased leaves without an ERASED verdict, and returns their
 * indexes. The caller must write their verdicts in the same transaction.
 */
export const takeDueErasures = (tx: Transaction, belowIndex: number, limit: number) =>
  valuesOf<number>(tx`
    delete from svc.erasure_due where leaf_index in (
      select leaf_index from svc.erasure_due where leaf_index < ${belowIndex}
      order by leaf_index limit ${limit})
    returning leaf_index`);

export async function forgetExpiries(tx: Transaction, leaves: readonly number[]): Promise<void> {
  await tx`delete from svc.expiry where leaf_index = any(${[...leaves]}::bigint[])`;
}
