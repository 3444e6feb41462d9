import type { Db } from './db.js';
import { asking } from './errors.js';
import { treeSize } from './log.js';
import { frontier, scrubPosition, verdictsForLeaves } from './verdicts.js';

// What is read now and then to be shown to operators, by programs whose roles may read it anyway.

/** What is accepted and not settled: how many, and when the oldest came, in epoch milliseconds. */
export function pendingNow(sql: Db): Promise<{ admissions: number; oldestAt: number | null }> {
  return asking(async () => {
    const [row] = await sql<{ admissions: string; oldest: Date | null }[]>`
      select count(*) as admissions, min(accepted_at) as oldest from svc.intake_pending`;
    return {
      admissions: Number(row?.admissions ?? 0),
      oldestAt: row?.oldest?.getTime() ?? null,
    };
  });
}

/** Beyond this a number says no more than that it is very many. */
const FAILING_COUNTED = 10_000;

/** Leaves on which the verdict in force is that they do not verify, counted up to ten thousand. */
export function failingLeaves(sql: Db): Promise<number> {
  return asking(async () => {
    const rows = await sql<{ leaf: string }[]>`
      select distinct first_index as leaf from svc.verdict
      where not frontier and outcome = 'fail' order by leaf desc limit ${FAILING_COUNTED}`;
    if (rows.length === 0) return 0;
    const inForce = await verdictsForLeaves(
      sql,
      rows.map(({ leaf }) => Number(leaf)),
    );
    return [...inForce.values()].filter(({ outcome }) => outcome === 'fail').length;
  });
}

/** How far the verifier is. */
export async function verifierPlace(
  sql: Db,
): Promise<{ lag: number; scrubbedTo: number; failing: number }> {
  // The prefix first: what is appended in between makes the distance longer, never less than none.
  const verified = (await frontier(sql))?.treeSize ?? 0;
  return {
    lag: Math.max(0, (await treeSize(sql)) - verified),
    scrubbedTo: (await scrubPosition(sql)).nextIndex,
    failing: await failingLeaves(sql),
  };
}

/** How long the log is, and the last checkpoint that was signed of it. */
export function logAndCheckpoint(
  sql: Db,
): Promise<{ leaves: number; checkpoint: { treeSize: number; signedAt: number } | null }> {
  return asking(async () => {
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

/** The whole database on disk. */
export function databaseBytes(sql: Db): Promise<number> {
  return asking(async () => {
    const [row] = await sql<{ bytes: string }[]>`
      select pg_database_size(current_database()) as bytes`;
    return Number(row?.bytes);
  });
}
