import {
  type Db,
  openedTransaction,
  pipeline,
  type Pool,
  readTransaction,
  type Statement,
  type Transaction,
} from './transaction.js';

/** An id with its tenant: the query sees only rows of that tenant. */
export interface OwnId {
  tenantNo: number;
  id: string;
}

/**
 * Runs `work` in one transaction in which row-level security shows only the rows of these tenants.
 * Outside of it the engine's role sees no tenant rows, so neither a query without a tenant predicate
 * nor an injected one can read another tenant.
 *
 * Never nest it: when outer calls hold every connection, the inner ones deadlock.
 */
export function asTenants<T>(
  sql: Pool,
  tenants: readonly number[],
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return openedTransaction(sql, (tx) => scopeTo(tx, tenants), work);
}

/** As `asTenants`, but reads `opening` first in the same round trip. */
export function asTenantsAfter<O, T>(
  sql: Pool,
  tenants: readonly number[],
  opening: (tx: Transaction) => Promise<O>,
  work: (tx: Transaction, opened: O) => Promise<T>,
): Promise<T> {
  const open = async (tx: Transaction): Promise<O> => {
    const scoped = scopeTo(tx, tenants).execute();
    const [, opened] = await pipeline(scoped, opening(tx));
    return opened;
  };
  return openedTransaction(sql, open, work);
}

/** As `asTenants` for one read-only statement, in one round trip. */
export function readAsTenants<T>(
  sql: Pool,
  tenants: readonly number[],
  reading: (tx: Transaction) => Statement<T>,
): Promise<T> {
  return readTransaction(sql, (tx) => scopeTo(tx, tenants), reading);
}

const scopeTo = (tx: Transaction, tenants: readonly number[]) => tx`
  select set_config('svc.tenants', ${`{${[...new Set(tenants)].join(',')}}`}, true)`;

/** The tables that row-level security scopes to one tenant, directly or through their parent. */
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

/** The tenant tables whose rows of every tenant the connected role can see. */
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
