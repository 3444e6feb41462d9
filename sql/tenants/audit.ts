import { OperatorError } from '#runtime/process/operator-error';
import { type Db, type Pool, type Transaction, transaction } from '../db/transaction.js';
import { lockHead } from '../log/append.js';

/** The target of an administrative command is unknown, or its state does not allow the command. */
export class AdministrationError extends OperatorError {}

export function noTenant(tenantId: string): AdministrationError {
  return new AdministrationError(
    `unknown tenant ${tenantId}: run "tenant list" to see all tenants`,
  );
}

export async function tenantNumber(sql: Db, tenantId: string): Promise<number> {
  const [row] = await sql<{ no: number }[]>`
    select tenant_no as no from svc.tenant where tenant_id = ${tenantId}`;
  if (row === undefined) throw noTenant(tenantId);
  return row.no;
}

/** The actor and the command, without its arguments, which may contain secrets. */
export interface Act {
  actor: string;
  act: string;
}

/**
 * Runs one administrative command in one transaction, whose settings name the actor. Triggers write
 * the audit records, so they commit with the change, and a failed command leaves none.
 */
export function withAuditContext<T>(
  sql: Pool,
  act: Act,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transaction(sql, async (tx) => {
    await tx`select set_config('svc.actor', ${act.actor}, true), set_config('svc.act', ${act.act}, true)`;
    return work(tx);
  });
}

/** Runs `work` in the given transaction, or in a new one. */
export function joinTransaction<T>(
  sql: Pool | Transaction,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return 'release' in sql ? work(sql) : transaction(sql, work);
}

export interface AuditRecord {
  auditId: number;
  at: Date;
  dbRole: string;
  /** The actor of the command; null for a change without a command. */
  actor: string | null;
  act: string | null;
  /** The table, and the operation on the row. */
  object: string;
  operation: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

export function listAudit(sql: Db, limit: number): Promise<AuditRecord[]> {
  return sql<AuditRecord[]>`
    select audit_id as "auditId", at, db_role as "dbRole", actor, act, object, operation, before, after
    from svc.audit order by audit_id desc limit ${limit}`;
}

/**
 * Takes the append lock for a gate change. Workers check the gates under the same lock, so after
 * the commit of this transaction, nothing is appended under the old state.
 */
export function withGateLock<T>(
  sql: Pool | Transaction,
  change: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return joinTransaction(sql, async (tx) => {
    await lockHead(tx);
    return change(tx);
  });
}
