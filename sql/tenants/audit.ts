import { mapDbErrors } from '../db/errors.js';
import { type Db, type Pool, type Transaction, transaction } from '../db/transaction.js';
import { lockHead } from '../log/log.js';

/** The target of an administrative command is unknown, or cannot be changed like this. */
export class AdministrationError extends Error {
  override readonly name = 'AdministrationError';
  readonly forOperator = true;
}

export function noTenant(tenantId: string): AdministrationError {
  return new AdministrationError(`unknown tenant ${tenantId}: list tenants with tenant list`);
}

/** The actor and the command. Only the command's words: arguments may hold secrets. */
export interface Act {
  actor: string;
  act: string;
}

/**
 * Runs one administrative command in one transaction that carries its actor. Triggers write the audit
 * records, so they commit with the change, and a failed command leaves none.
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
  return isTransaction(sql) ? mapDbErrors(() => work(sql)) : transaction(sql, work);
}

function isTransaction(sql: Pool | Transaction): sql is Transaction {
  return 'release' in sql;
}

/** One changed row, as the database recorded it. */
export interface AuditRecord {
  auditId: number;
  at: Date;
  /** The login role. */
  dbRole: string;
  /** The actor of the command; null for a change without a command. */
  actor: string | null;
  act: string | null;
  /** The table, and the operation on its row. */
  object: string;
  operation: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/** The newest records, newest first. */
export function listAudit(sql: Db, limit: number): Promise<AuditRecord[]> {
  return mapDbErrors(async () => {
    const rows = await sql<
      {
        audit_id: string;
        at: Date;
        db_role: string;
        actor: string | null;
        act: string | null;
        object: string;
        operation: string;
        before: Record<string, unknown> | null;
        after: Record<string, unknown> | null;
      }[]
    >`
      select audit_id, at, db_role, actor, act, object, operation, before, after
      from svc.audit order by audit_id desc limit ${limit}`;
    return rows.map((row) => ({
      auditId: Number(row.audit_id),
      at: row.at,
      dbRole: row.db_role,
      actor: row.actor,
      act: row.act,
      object: row.object,
      operation: row.operation,
      before: row.before,
      after: row.after,
    }));
  });
}

/**
 * Takes the append lock for a gate change. Workers check the gates under the same lock, so after this
 * commits nothing is appended under the old state.
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
