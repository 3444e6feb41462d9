import type { Db } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';

/** A program's role: whether it can log in, and its number of connections to this database. */
export interface RoleInUse {
  role: string;
  login: boolean;
  connections: number;
}

/** The overview of `admin status` that no other query gives. */
export interface Overview {
  /** The database's time, in epoch milliseconds. */
  now: number;
  apiKeys: number;
  allowlisted: number;
  /** Open batches and the acceptance time of the oldest. */
  batches: { open: number; oldestAt: number | null };
  roles: RoleInUse[];
  /** Signing keys of connected workers, from their application names. */
  workerKeys: string[];
}

export function readOverview(sql: Db): Promise<Overview> {
  return mapDbErrors(async () => {
    const [row] = await sql<
      {
        now: Date;
        api_keys: number;
        allowlisted: number;
        open_batches: number;
        oldest_batch: Date | null;
      }[]
    >`
      select now(),
        (select count(*)::integer from svc.api_key
          where revoked_at is null and (expires_at is null or expires_at > now())) as api_keys,
        (select count(*)::integer from svc.tenant where allowlisted) as allowlisted,
        count(g.batch_id)::integer as open_batches, min(b.accepted_at) as oldest_batch
      from svc.batch_progress g join svc.batch b using (batch_id) where g.pending > 0`;
    // pg_stat_activity shows every role's sessions; no table lists the running programs.
    const roles = await sql<{ role: string; login: boolean; connections: number }[]>`
      select r.rolname as role, r.rolcanlogin as login,
        (select count(*)::integer from pg_stat_activity a
          where a.usename = r.rolname and a.datname = current_database()) as connections
      from pg_roles r where r.rolname like 'svc\\_%' order by r.rolname`;
    const workers = await sql<{ key: string }[]>`
      select distinct substr(application_name, 12) as key from pg_stat_activity
      where datname = current_database() and usename = 'svc_worker'
        and application_name ~ '^svc-worker [A-Za-z0-9_-]{43}$' order by key`;
    return {
      now: row?.now.getTime() ?? 0,
      apiKeys: row?.api_keys ?? 0,
      allowlisted: row?.allowlisted ?? 0,
      batches: { open: row?.open_batches ?? 0, oldestAt: row?.oldest_batch?.getTime() ?? null },
      roles: [...roles],
      workerKeys: workers.map(({ key }) => key),
    };
  });
}
