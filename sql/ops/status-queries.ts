import type { Db } from '../db/transaction.js';
import { inMs } from '../db/columns.js';

/** A program's role: whether it can log in, and its number of connections to this database. */
export interface RoleInUse {
  role: string;
  login: boolean;
  connections: number;
}

export interface Overview {
  now: number;
  apiKeys: number;
  allowlisted: number;
  /** Open batches and the acceptance time of the oldest. */
  batches: { open: number; oldestAt: number | null };
  roles: RoleInUse[];
  /** Signing keys of connected workers, from their application names. */
  workerKeys: string[];
}

export async function readOverview(sql: Db): Promise<Overview> {
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
    batches: { open, oldestAt },
    roles: [...roles],
    workerKeys: workers.map(({ key }) => key),
  };
}
