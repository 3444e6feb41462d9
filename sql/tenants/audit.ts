import { mapDbErrors } from '../db/errors.js';
import { type Db, type Pool, type Transaction, transaction } from '../db/transaction.js';
import { lockHead } from '../log/log.js';

/** What was to be changed does not exist, or may not be changed like this. */
export class AdministrationError extends Error {
  override readonly name = 'AdministrationError';
  readonly forOperator = true;
}

export function noTenant(tenantId: string): AdministrationError {
  return new AdministrationError(`there is no tenant ${tenantId}: tenant list shows them all`);
}

/** Who acts, and with which command. The command's words only: arguments may hold secrets. */
export interface Act {
  actor: string;
  act: string;
}

/**
 * Runs one administrative act in one transaction that says who acts. The records of it are written
 * by the database's own triggers, so they commit with the act, and a failed act leaves none.
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

/** Runs `work` in the transaction that it is given, or in one of its own. */
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
  /** The database role that logged in. */
  dbRole: string;
  /** Who acted, as far as the command knew; null for what no command did. */
  actor: string | null;
  act: string | null;
  /** The table, and what was done to its row. */
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
 * Gate changes take the append lock. A worker asks the gates under the same lock, so once this has
 * committed nothing is appended that the old state of the gate would have let through.
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
