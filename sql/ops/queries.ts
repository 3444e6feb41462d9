import { inMs, valueOf, type WithDates } from '../db/columns.js';
import type { Db, Fragment } from '../db/transaction.js';
import { treeSize } from '../log/log.js';
import { verifiedPrefix, scrubPosition, failedOf, voidedOf } from '../log/verdicts.js';

// Records of heartbeats and maintenance, and queries for metrics and status. The queries for metrics need no rights
// beyond those that the reporting programs already have.

/** The number of pending admissions, and the age of the oldest in milliseconds by the database's clock. */
export async function pendingNow(sql: Db) {
  const [row] = await sql<[{ admissions: number; oldestMs: number | null }]>`
    select s.n + c.n as admissions,
      (extract(epoch from clock_timestamp() - least(s.oldest, c.oldest)) * 1000)::bigint as "oldestMs"
    from (select count(*) as n, min(accepted_at) as oldest from svc.intake_pending) s,
      (select coalesce(sum(admissions), 0) as n, min(accepted_at) as oldest from svc.chunk_pending) c`;
  // After the database's clock was set back, an acceptance may lie in the future.
  return { ...row, oldestMs: row.oldestMs && Math.max(0, row.oldestMs) };
}

const FAILING_COUNTED = 10_000;

/** Leaves whose effective verdict is fail, each count capped at FAILING_COUNTED. */
export interface FailingLeaves {
  failing: number;
  /** Leaves that fail only because a compromised key signed them; not counted in `failing`. */
  voided: number;
}

export async function failingLeaves(sql: Db): Promise<FailingLeaves> {
  const [failed, voided] = [failedOf(sql), voidedOf(sql)];
  const count = (of: Fragment, candidates: Fragment) => sql`
    select count(*) from (
      select distinct first_index as leaf from svc.verdict
      where not frontier and outcome = 'fail' ${candidates}
      order by leaf desc limit ${FAILING_COUNTED}) as candidate
    cross join lateral (
      select outcome, checks from svc.verdict where not frontier and first_index = leaf
      order by tree_size desc, verdict_id desc limit 1) as in_force
    where outcome = 'fail' and ${of}`;
  const isOther = sql`${failed} <> ${voided}`;
  const [row] = await sql<[FailingLeaves]>`
    select (${count(isOther, sql`and ${isOther}`)}) as failing,
      (${count(sql`${failed} = ${voided}`, sql``)}) as voided`;
  return row;
}

export async function verifierPlace(sql: Db) {
  // Reads the prefix first, so that leaves appended in between cannot make the distance negative.
  const prefix = await verifiedPrefix(sql);
  const verified = prefix?.treeSize ?? 0;
  const [oldest] = await sql<{ at: Date }[]>`
    select at from svc.log_entry where leaf_index = ${verified}`;
  return {
    lag: Math.max(0, (await treeSize(sql)) - verified),
    verifiedAt: prefix?.verifiedAt ?? null,
    /** The time of the first leaf without a verdict. */
    oldestAt: oldest?.at.getTime() ?? null,
    scrubbedTo: (await scrubPosition(sql))?.nextIndex ?? null,
    ...(await failingLeaves(sql)),
  };
}

export async function logAndCheckpoint(sql: Db) {
  const [row] = await sql<
    [{ leaves: number; treeSize: number | null; signedAt: Date; oldestAt: Date | null }]
  >`
    select h.tree_size as leaves, c.tree_size as "treeSize", c.created_at as "signedAt",
      (select at from svc.log_entry where leaf_index = c.tree_size) as "oldestAt"
    from svc.log_head h left join lateral (
      select tree_size, created_at from svc.checkpoint order by tree_size desc limit 1) as c on true`;
  const { leaves, treeSize, ...times } = row;
  return {
    leaves,
    /** `oldestAt`: the time of the first leaf that the checkpoint does not cover. */
    checkpoint: treeSize === null ? null : { treeSize, ...inMs(times) },
  };
}

export const databaseBytes = (sql: Db): Promise<number> =>
  valueOf(sql`select pg_database_size(current_database())`);

/** A program's role: whether it can log in, and its number of connections to this database. */
export interface RoleInUse {
  role: string;
  login: boolean;
  connections: number;
}

export async function readOverview(sql: Db) {
  const [row] = await sql<
    [{ now: Date; apiKeys: number; allowlisted: number; open: number; oldestAt: Date | null }]
  >`
    select now(),
      (select count(*) from svc.api_key
        where revoked_at is null and (expires_at is null or expires_at > now())) as "apiKeys",
      (select count(*) from svc.tenant where allowlisted) as allowlisted,
      count(g.batch_id) as open, min(b.accepted_at) as "oldestAt"
    from svc.batch_progress g join svc.batch b using (batch_id) where g.pending > 0`;
  // pg_stat_activity shows every role's sessions; no table lists the running programs.
  const roles = await sql<RoleInUse[]>`
    select r.rolname as role, r.rolcanlogin as login,
      (select count(*) from pg_stat_activity a
        where a.usename = r.rolname and a.datname = current_database()) as connections
    from pg_roles r where r.rolname like 'svc\\_%' order by r.rolname`;
  const workers = await sql<{ key: string }[]>`
    select distinct substr(application_name, 12) as key from pg_stat_activity
    where datname = current_database() and usename = 'svc_worker'
      and application_name ~ '^svc-worker [A-Za-z0-9_-]{43}$' order by key`;
  const { open, oldestAt, ...rest } = inMs(row);
  return {
    ...rest,
    /** Open batches and the acceptance time of the oldest. */
    batches: { open, oldestAt },
    roles: [...roles],
    /** Signing keys of connected workers, from their application names. */
    workerKeys: workers.map(({ key }) => key),
  };
}

/** The last report of a program instance; times in epoch milliseconds of the database. */
export interface Heartbeat {
  program: string;
  startedAt: number;
  beatAt: number;
  /** The body of the program's `/readyz`. */
  readiness: Readonly<Record<string, unknown>>;
}

export async function recordHeartbeat(sql: Db, instance: string, readiness: object): Promise<void> {
  await sql`
    select svc.record_heartbeat(${instance}::uuid, ${JSON.stringify(readiness)}::text::jsonb)`;
}

export async function readHeartbeats(sql: Db): Promise<Heartbeat[]> {
  const rows = await sql<WithDates<Heartbeat, 'startedAt' | 'beatAt'>[]>`
    select regexp_replace(role, '^svc_', '') as program, started_at as "startedAt", beat_at as "beatAt", readiness
    from svc.heartbeat order by role, beat_at`;
  return rows.map(inMs);
}

export interface Publishing {
  /** Time of the last cycle that published a snapshot, or found it current, in epoch milliseconds of the database; null without a report. */
  publishedAt: number | null;
  /** The reason of the last fatal publish error; null after a later snapshot. */
  refused: string | null;
}

export function publishing(heartbeats: readonly Heartbeat[]): Publishing {
  const publishers = heartbeats.filter(({ program }) => program === 'publisher');
  const published = publishers.flatMap(({ beatAt, readiness }) => {
    const ago = readiness['published_ms_ago'];
    return typeof ago === 'number' ? [beatAt - ago] : [];
  });
  const publishedAt = published.length === 0 ? null : Math.max(...published);
  const refusals = publishers.filter(
    ({ beatAt, readiness }) =>
      typeof readiness['refused'] === 'string' && beatAt > (publishedAt ?? -Infinity),
  );
  const last = refusals.sort((a, b) => a.beatAt - b.beatAt).at(-1);
  return { publishedAt, refused: last === undefined ? null : String(last.readiness['refused']) };
}

/**
 * Records that a clean fsck of the registry, or a base backup, ended now; the role of the caller
 * decides which of the two.
 */
export async function recordMaintenance(sql: Db): Promise<void> {
  await sql`select svc.record_maintenance()`;
}

/** Records that fsck found corruption, or that a complete and clean run over registry and snapshot ended now. */
export async function recordFsck(sql: Db, isCorrupt: boolean): Promise<void> {
  await sql`select svc.record_fsck(${isCorrupt})`;
}

interface Maintenance {
  kind: string;
  since: Date;
  endedAt: Date | null;
  /** When fsck last found corruption; null after a clean run. */
  failedAt: Date | null;
}

/** Reported as the lag of a slot whose WAL PostgreSQL has removed: its standby can never continue. */
const LOST_BYTES = 1e15;

/** Reads only views that every role may read; `pg_stat_replication` would need another privilege. */
export async function readUpkeep(sql: Db) {
  const rows = await sql<Maintenance[]>`
    select kind, since, ended_at as "endedAt", failed_at as "failedAt"
    from svc.maintenance order by kind`;
  const [row] = await sql<[{ now: Date; archivedAt: Date | null; replicationBytes: number }]>`
    select now(),
      (select coalesce(last_archived_time, stats_reset, pg_postmaster_start_time()) from pg_stat_archiver
        where current_setting('archive_mode') <> 'off') as "archivedAt",
      (select coalesce(max(case when wal_status = 'lost' then ${LOST_BYTES}::numeric
          else pg_current_wal_lsn() - restart_lsn end), 0)::bigint
        from pg_replication_slots where not pg_is_in_recovery()) as "replicationBytes"`;
  const { now, archivedAt, replicationBytes } = inMs(row);
  return {
    now,
    /** The last clean fsck and the last base backup. `since` is the time of the migration. */
    maintenance: rows.map((one) => inMs(one)),
    /** Milliseconds since PostgreSQL archived a WAL segment; null without an archive. */
    archiveAgeMs: archivedAt && Math.max(0, now - archivedAt),
    /** WAL that the slowest replication slot has not received; 0 without a slot. */
    replicationBytes,
  };
}
