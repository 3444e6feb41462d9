import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind, Outcome } from '#protocol/status';
import { mapDbErrors } from '../db/errors.js';
import type { Db, Transaction } from '../db/transaction.js';

/** The part of the log, from leaf 0, that has verdicts without a gap. */
export interface VerifiedPrefix {
  /** Leaves verified, contiguous from 0. */
  treeSize: number;
  /** The root that the verifier computed over them. */
  root: Buffer;
  /** The compact range behind the root: the perfect subtrees' hashes, 32 bytes each. */
  subtrees: Buffer;
  /** Chain over every key entry of the prefix, 32 bytes. */
  keysDigest: Buffer;
  verifiedAt: number;
  verdictId: number;
}

export interface LeafVerdict {
  outcome: Outcome;
  expired: ArtifactKind[];
  /** Epoch milliseconds. */
  verifiedAt: number;
  /** The verdict covers only this leaf, not a range. */
  own: boolean;
}

export interface NewVerdict {
  /** The verifier's resume state; null for a verdict on a single leaf. */
  prefix: { subtrees: Uint8Array; keysDigest: Uint8Array } | null;
  firstIndex: number;
  lastIndex: number;
  treeSize: number;
  root: Uint8Array;
  outcome: Outcome;
  expired: ArtifactKind[];
  checks: unknown;
}

/** The verified prefix of the log; null before anything was verified. */
export function verifiedPrefix(sql: Db): Promise<VerifiedPrefix | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<
      {
        last_index: string;
        root: Buffer;
        subtrees: Buffer;
        keys_digest: Buffer;
        verified_at: Date;
        verdict_id: string;
      }[]
    >`
      select last_index, root, subtrees, keys_digest, verified_at, verdict_id from svc.verdict
      where frontier order by last_index desc limit 1`;
    if (row === undefined) return null;
    return {
      treeSize: Number(row.last_index) + 1,
      root: row.root,
      subtrees: row.subtrees,
      keysDigest: row.keys_digest,
      verifiedAt: row.verified_at.getTime(),
      verdictId: Number(row.verdict_id),
    };
  });
}

/** Verdicts on single leaves after `verdictId`, in order. */
export function verdictChangesSince(
  sql: Db,
  verdictId: number,
  limit: number,
): Promise<
  {
    verdictId: number;
    leafIndex: number;
    treeSize: number;
    failedChecks: string[];
    keyId: string | null;
  }[]
> {
  return mapDbErrors(async () => {
    const rows = await sql<
      {
        verdict_id: string;
        first_index: string;
        tree_size: string;
        failed_checks: string[];
        key_id: string | null;
      }[]
    >`
      select verdict_id, first_index, tree_size,
        jsonb_path_query_array(checks, '$[*] ? (@.result == "fail").name') as failed_checks,
        (select p.key_id from svc.log_entry e join svc.proof p using (proof_id)
          where e.leaf_index = v.first_index and e.kind = 1) as key_id
      from svc.verdict v
      where verdict_id > ${verdictId} and not frontier order by verdict_id limit ${limit}`;
    return rows.map((row) => ({
      verdictId: Number(row.verdict_id),
      leafIndex: Number(row.first_index),
      treeSize: Number(row.tree_size),
      failedChecks: row.failed_checks,
      keyId: row.key_id,
    }));
  });
}

/** The id of the last verdict; 0 without verdicts. */
export function lastVerdictId(sql: Db): Promise<number> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ last: string | null }[]>`
      select max(verdict_id) as last from svc.verdict`;
    return Number(row?.last ?? 0);
  });
}

interface VerdictRow {
  frontier: boolean;
  first_index: number;
  last_index: number;
  outcome: Outcome;
  expired: ArtifactKind[];
  verified_at: Date;
}

/** The effective verdict on each leaf of [from, to); leaves without a verdict are absent. */
export function verdictsForRange(
  sql: Db,
  from: number,
  to: number,
): Promise<Map<number, LeafVerdict>> {
  return mapDbErrors(async () => {
    // The range rows partition the prefix, and a row on one leaf was made later, for a larger log.
    // So single-leaf rows override ranges.
    const ranges = await sql<VerdictRow[]>`
      select frontier, first_index, last_index, outcome, expired, verified_at from svc.verdict
      where frontier and last_index >= ${from}
        and last_index < coalesce((select min(last_index) + 1 from svc.verdict
          where frontier and last_index >= ${to} - 1), ${to})
      order by last_index`;
    const singles = await sql<VerdictRow[]>`
      select frontier, first_index, last_index, outcome, expired, verified_at from svc.verdict
      where not frontier and first_index >= ${from} and first_index < ${to}
      order by tree_size, verdict_id`;
    const inForce = new Map<number, LeafVerdict>();
    for (const row of [...ranges, ...singles]) {
      const { outcome, expired, frontier } = row;
      const verdict = { outcome, expired, verifiedAt: row.verified_at.getTime(), own: !frontier };
      const end = Math.min(row.last_index, to - 1);
      for (let leaf = Math.max(row.first_index, from); leaf <= end; leaf += 1) {
        inForce.set(leaf, verdict);
      }
    }
    return inForce;
  });
}

/** The effective verdict on each leaf: of all rows that cover it, the one for the largest log, then the latest. */
export function verdictsForLeaves(sql: Db, leaves: number[]): Promise<Map<number, LeafVerdict>> {
  return mapDbErrors(async () => {
    const rows = await sql<(Omit<VerdictRow, 'first_index' | 'last_index'> & { leaf: string })[]>`
      select asked.leaf, v.frontier, v.outcome, v.expired, v.verified_at
      from unnest(${leaves}::bigint[]) as asked(leaf)
      cross join lateral (
        select * from (
          (select * from svc.verdict where frontier and last_index >= asked.leaf
            order by last_index limit 1)
          union all
          (select * from svc.verdict where not frontier and first_index = asked.leaf)) as covering
        where first_index <= asked.leaf
        order by tree_size desc, verdict_id desc limit 1) as v`;
    return new Map(
      rows.map((row) => [
        Number(row.leaf),
        {
          outcome: row.outcome,
          expired: row.expired,
          verifiedAt: row.verified_at.getTime(),
          own: !row.frontier,
        },
      ]),
    );
  });
}

/** Every verdict that covers each leaf, oldest first: the last is effective. Leaves without one are absent. */
export function verdictHistories(
  sql: Db,
  leaves: readonly number[],
): Promise<Map<number, VerdictInHistory[]>> {
  return mapDbErrors(async () => {
    const rows = await sql<
      {
        leaf: string;
        verdict_id: string;
        frontier: boolean;
        tree_size: string;
        outcome: Outcome;
        expired: ArtifactKind[];
        verified_at: Date;
        failed_checks: string[];
      }[]
    >`
      select asked.leaf, v.verdict_id, v.frontier, v.tree_size, v.outcome, v.expired, v.verified_at,
        jsonb_path_query_array(v.checks, '$[*] ? (@.result == "fail").name') as failed_checks
      from unnest(${[...new Set(leaves)]}::bigint[]) as asked(leaf)
      cross join lateral (
        (select * from svc.verdict where frontier and last_index >= asked.leaf
          order by last_index limit 1)
        union all
        (select * from svc.verdict where not frontier and first_index = asked.leaf)) as v
      where v.first_index <= asked.leaf
      order by v.tree_size, v.verdict_id`;
    const histories = new Map<number, VerdictInHistory[]>();
    for (const row of rows) {
      const leaf = Number(row.leaf);
      const history = histories.get(leaf) ?? [];
      histories.set(leaf, history);
      history.push({
        verdictId: Number(row.verdict_id),
        frontier: row.frontier,
        treeSize: Number(row.tree_size),
        outcome: row.outcome,
        expired: row.expired,
        verifiedAt: row.verified_at.getTime(),
        failedChecks: row.failed_checks,
      });
    }
    return histories;
  });
}

/**
 * Inserts verdicts. Only the verifier's role may.
 *
 * @param at the time of verification, epoch milliseconds of the database; the transaction's start by default
 */
export function insertVerdicts(sql: Db, verdicts: NewVerdict[], at?: number): Promise<void> {
  return mapDbErrors(async () => {
    if (verdicts.length === 0) return;
    const rows = verdicts.map(({ prefix, ...verdict }) => ({
      frontier: prefix !== null,
      first_index: verdict.firstIndex,
      last_index: verdict.lastIndex,
      tree_size: verdict.treeSize,
      root: Buffer.from(verdict.root),
      subtrees: prefix === null ? null : Buffer.from(prefix.subtrees),
      keys_digest: prefix === null ? null : Buffer.from(prefix.keysDigest),
      outcome: verdict.outcome,
      expired: verdict.expired,
      checks: sql.json(verdict.checks as never),
      ...(at !== undefined && { verified_at: new Date(at) }),
    }));
    await sql`insert into svc.verdict ${sql(rows)}`;
  });
}

/** The end of an artifact's validity. */
export interface Expiry {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  expiresAt: number;
}

/** Stores expiries, so that the expiry scan need not read the registry. */
export function insertExpiries(sql: Db, expiries: Expiry[]): Promise<void> {
  return mapDbErrors(async () => {
    for (let start = 0; start < expiries.length; start += EXPIRY_BATCH_SIZE) {
      const rows = expiries.slice(start, start + EXPIRY_BATCH_SIZE).map((expiry) => ({
        leaf_index: expiry.leafIndex,
        artifact_kind: expiry.kind,
        expires_at: new Date(expiry.expiresAt),
      }));
      await sql`insert into svc.expiry ${sql(rows)} on conflict do nothing`;
    }
  });
}

/** Three parameters each, and a statement allows at most 65,535. */
const EXPIRY_BATCH_SIZE = 5_000;

/**
 * Deletes and returns expiries that are due by the database clock. The caller must write their verdicts
 * in the same transaction.
 */
export function takeDueExpiries(
  tx: Transaction,
  belowIndex: number,
  limit: number,
): Promise<{ leafIndex: number; kind: ArtifactKind }[]> {
  return mapDbErrors(async () => {
    const rows = await tx<{ leaf_index: string; artifact_kind: ArtifactKind }[]>`
      delete from svc.expiry where (leaf_index, artifact_kind) in (
        select leaf_index, artifact_kind from svc.expiry
        where expires_at <= now() and leaf_index < ${belowIndex}
        order by expires_at limit ${limit} for update skip locked)
      returning leaf_index, artifact_kind`;
    return rows.map((row) => ({ leafIndex: Number(row.leaf_index), kind: row.artifact_kind }));
  });
}

/** The scrubber's position and the end of the urgent leaves. */
export interface ScrubPosition {
  nextIndex: number;
  /** The leaves of [nextIndex, urgentUntil) come first, newest first; 0 when there are no urgent leaves. */
  urgentUntil: number;
  /** Incremented each time leaves are made urgent. */
  epoch: number;
}

export function scrubPosition(sql: Db): Promise<ScrubPosition> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ next_index: number; urgent_until: number; epoch: number }[]>`
      select next_index, urgent_until, epoch from svc.scrub`;
    if (row === undefined) throw new Error('svc.scrub has no row');
    return { nextIndex: row.next_index, urgentUntil: row.urgent_until, epoch: row.epoch };
  });
}

/** Stores the scrubber's position. */
export function advanceScrubCursor(
  sql: Db,
  { nextIndex, urgentUntil }: Omit<ScrubPosition, 'epoch'>,
): Promise<void> {
  return mapDbErrors(async () => {
    await sql`
      update svc.scrub set next_index = ${nextIndex}, urgent_until = ${urgentUntil}`;
  });
}

/** Makes the scrubber check the leaves of [from, until) first: their verdicts may be wrong. */
export function scrubUrgently(sql: Db, from: number, until: number): Promise<void> {
  return mapDbErrors(async () => {
    await sql`
      update svc.scrub set
        next_index = case when urgent_until > 0 then least(next_index, ${from}) else ${from} end,
        urgent_until = greatest(urgent_until, ${until}),
        epoch = epoch + 1`;
  });
}

/** The database's time, in epoch milliseconds. */
export function databaseTime(sql: Db): Promise<number> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ now: Date }[]>`
      select date_trunc('milliseconds', clock_timestamp()) as now`;
    if (row === undefined) throw new Error('the database returned no time');
    return row.now.getTime();
  });
}

/**
 * Records that an expiry scan which began at `beganAt`, epoch milliseconds of the database, has
 * finished. The latest scan of several verifiers counts. A recorded time in the future is replaced:
 * the database clock was set back, and no scan covered that time.
 */
export function recordExpiryScan(sql: Db, beganAt: number): Promise<void> {
  return mapDbErrors(async () => {
    await sql`
      update svc.upkeep set done_at = case when done_at <= clock_timestamp() + interval '1 second'
        then greatest(done_at, ${new Date(beganAt)}::timestamptz)
        else ${new Date(beganAt)}::timestamptz end`;
  });
}

/** The start of the last finished expiry scan, in epoch milliseconds; null without a scan. */
export function expiryScanDoneAt(sql: Db): Promise<number | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ done_at: Date | null }[]>`select done_at from svc.upkeep`;
    return row?.done_at?.getTime() ?? null;
  });
}
