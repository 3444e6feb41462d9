import { inMs } from '../db/columns.js';
import type { Db } from '../db/transaction.js';

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
