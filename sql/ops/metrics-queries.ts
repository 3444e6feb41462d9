import type postgres from 'postgres';
import type { Db } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';
import { treeSize } from '../log/log.js';
import { verifiedPrefix, scrubPosition } from '../log/verdicts.js';

// Queries for operators' metrics, by programs whose roles can read these tables anyway.

/** The number of pending admissions, and the oldest acceptance time in epoch milliseconds. */
export function pendingNow(sql: Db): Promise<{ admissions: number; oldestAt: number | null }> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ admissions: string; oldest: Date | null }[]>`
      select count(*) as admissions, min(accepted_at) as oldest from svc.intake_pending`;
    return {
      admissions: Number(row?.admissions ?? 0),
      oldestAt: row?.oldest?.getTime() ?? null,
    };
  });
}

/** Counting stops here. */
const FAILING_COUNTED = 10_000;

type Fragment = postgres.PendingQuery<postgres.Row[]>;

/** Leaves whose effective verdict is fail, each count capped at FAILING_COUNTED. */
export interface FailingLeaves {
  failing: number;
  /** Failing only because a compromised key signed them; the others are in `failing`. */
  voided: number;
}

export function failingLeaves(sql: Db): Promise<FailingLeaves> {
  return mapDbErrors(async () => {
    const failed = sql`jsonb_path_query_array(checks, '$[*] ? (@.result == "fail")')`;
    // Must equal the verifier's text and the partial index of migration 0017, or the query reads all voided rows.
    const voided = sql`
      '[{"name": "signing_key", "result": "fail", "detail": "by the log the key is compromised at this position"}]'`;
    const count = (of: Fragment, candidates: Fragment) => sql`
      select count(*)::int from (
        select distinct first_index as leaf from svc.verdict
        where not frontier and outcome = 'fail' ${candidates}
        order by leaf desc limit ${FAILING_COUNTED}) as candidate
      cross join lateral (
        select outcome, checks from svc.verdict where not frontier and first_index = leaf
        order by tree_size desc, verdict_id desc limit 1) as in_force
      where outcome = 'fail' and ${of}`;
    const isOther = sql`${failed} <> ${voided}`;
    const [row] = await sql<FailingLeaves[]>`
      select (${count(isOther, sql`and ${isOther}`)}) as failing,
        (${count(sql`${failed} = ${voided}`, sql``)}) as voided`;
    return row ?? { failing: 0, voided: 0 };
  });
}

/** The verified size and the log size. */
export async function verifierPlace(
  sql: Db,
): Promise<{ lag: number; scrubbedTo: number } & FailingLeaves> {
  // The prefix first: leaves appended in between must not make the distance negative.
  const verified = (await verifiedPrefix(sql))?.treeSize ?? 0;
  return {
    lag: Math.max(0, (await treeSize(sql)) - verified),
    scrubbedTo: (await scrubPosition(sql)).nextIndex,
    ...(await failingLeaves(sql)),
  };
}

/** The log size and the last signed checkpoint. */
export function logAndCheckpoint(
  sql: Db,
): Promise<{ leaves: number; checkpoint: { treeSize: number; signedAt: number } | null }> {
  return mapDbErrors(async () => {
    const [row] = await sql<
      { leaves: string; tree_size: string | null; created_at: Date | null }[]
    >`
      select h.tree_size as leaves, c.tree_size, c.created_at from svc.log_head h
      left join lateral (
        select tree_size, created_at from svc.checkpoint order by tree_size desc limit 1) as c on true`;
    const signedAt = row?.created_at?.getTime();
    return {
      leaves: Number(row?.leaves ?? 0),
      checkpoint: signedAt === undefined ? null : { treeSize: Number(row?.tree_size), signedAt },
    };
  });
}

/** The database's size on disk. */
export function databaseBytes(sql: Db): Promise<number> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ bytes: string }[]>`
      select pg_database_size(current_database()) as bytes`;
    return Number(row?.bytes);
  });
}
