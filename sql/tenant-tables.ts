import type { Db } from './db.js';

/** The tables whose rows are one tenant's each, by a column of their own or through their parent. */
export const TENANT_TABLES = [
  'batch',
  'batch_part',
  'batch_progress',
  'batch_turn',
  'batch_watch',
  'erasure',
  'grant_change',
  'idempotency_key',
  'intake',
  'intake_pending',
  'package_member',
  'proof',
  'refusal',
  'revocation_pending',
  'revocation_request',
  'share_due',
  'share_expiry',
  'share_revocation',
  'share_token',
  'status_exception',
  'trust_package',
] as const;

/** Those of them of which the connected role is shown every tenant's rows, whoever it speaks for. */
export async function unconfinedTables(sql: Db): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select c.relname as name
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
    where c.relname = any(${[...TENANT_TABLES]}::text[])
      and (not row_security_active(c.oid) or not c.relforcerowsecurity
        or exists (select from pg_policy p
          where p.polrelid = c.oid and p.polpermissive
            and p.polroles && array[0::oid, (select oid from pg_roles where rolname = current_user)]
            and pg_get_expr(p.polqual, p.polrelid) = 'true'))
    order by c.relname`;
  return rows.map((row) => row.name);
}
