import {
  type Db,
  pipeline,
  type Pool,
  readTransaction,
  type Statement,
  type Transaction,
  transaction,
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
 *
 * @param opening reads in the round trip that sets the scope
 */
export function asTenants<T, O = void>(
  sql: Pool,
  tenants: readonly number[],
  work: (tx: Transaction, opened: O) => Promise<T>,
  opening: (tx: Transaction) => Promise<O> = () => Promise.resolve() as Promise<never>,
): Promise<T> {
  return transaction(sql, work, async (tx) => {
    const scoped = scopeTo(tx, tenants).execute();
    const [, opened] = await pipeline(scoped, opening(tx));
    return opened;
  });
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
