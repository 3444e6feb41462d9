import type postgres from 'postgres';
import { valueOf } from './columns.js';
import {
  asUnavailable,
  DatabaseUnavailableError,
  DatabaseUnusableError,
  isAborted,
  isConnectionLost,
  mapStartupDbErrors,
} from './errors.js';

/** A pool or a transaction: the first parameter of every query function. */
export type Db = postgres.ISql<{ bigint: number }>;
export type Fragment = postgres.PendingQuery<postgres.Row[]>;
/** A pool, for functions that open transactions. */
export type Pool = { reserve(): Promise<Transaction> } & postgres.Sql<{ bigint: number }>;
/** An open transaction, for functions that must be called inside one. */
export type Transaction = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes the connection instead of returning it to the pool with `release`. */
  destroy(): void;
};

/**
 * Runs `work` in one transaction: committed when it returns, rolled back when it throws. `work` must
 * wait only for the database between its statements.
 *
 * @param opening sends statements in the round trip of `begin`. If `begin` fails, these statements run outside a
 * transaction, so none of them may change anything
 * @throws DatabaseUnavailableError when the connection is lost. A loss during the commit leaves the
 *   outcome unknown, so a retry must be idempotent.
 */
export function transaction<T, O = void>(
  sql: Pool,
  work: (tx: Transaction, opened: O) => Promise<T>,
  opening: (tx: Transaction) => Promise<O> = () => Promise.resolve() as Promise<never>,
): Promise<T> {
  return onReservedConnection(sql, async (tx) => {
    const begun = tx`begin isolation level read committed`.execute();
    const [, opened] = await pipeline(begun, opening(tx));
    const result = await work(tx, opened);
    requireCommit(await tx`commit`);
    return result;
  });
}

/** Runs `work` in one read-only REPEATABLE READ transaction. */
export function readSnapshot<T>(sql: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return onReservedConnection(sql, async (tx) => {
    await tx`begin isolation level repeatable read read only`;
    const result = await work(tx);
    await tx`commit`;
    return result;
  });
}

/** PostgreSQL answers ROLLBACK to a commit when a statement failed and its error was ignored. */
function requireCommit({ command }: { command: string }): void {
  if (command !== 'COMMIT') throw new Error('transaction rolled back: a statement failed');
}

/** A query that the driver sends only when the caller awaits or executes it. */
export interface Statement<T> extends Promise<T> {
  execute(): unknown;
}

/** Runs `work` on an exclusive connection; rolls back when it throws. */
async function onReservedConnection<T>(
  sql: Pool,
  work: (connection: Transaction) => Promise<T>,
): Promise<T> {
  let connection: Transaction | undefined;
  try {
    connection = await sql.reserve();
    const result = await work(connection);
    connection.release();
    return result;
  } catch (error) {
    if (connection !== undefined) await rollBack(connection, error);
    throw asUnavailable(error);
  }
}

/**
 * Sends statements of one transaction in order, without waiting for results in between. Returns
 * when all statements have ended, even if a statement fails, because no statement may be in flight
 * at rollback.
 *
 * @throws the error that aborted the transaction: a promise in the list may send its statement after later ones
 */
export async function pipeline<T extends readonly Promise<unknown>[]>(
  ...statements: T
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  const settled = await Promise.allSettled(statements);
  const errors = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as Error] : []));
  const cause = errors.find((error) => !isAborted(error)) ?? errors[0];
  if (cause !== undefined) throw cause;
  return Promise.all(statements);
}

/** Destroys a lost connection, because the driver keeps state about it. */
async function rollBack(connection: Transaction, error: unknown): Promise<void> {
  try {
    if (isConnectionLost(error)) throw error;
    await connection`rollback`;
    connection.release();
  } catch {
    connection.destroy();
  }
}

/** Values with which commits can be lost, no trigger of the schema runs, or queries fail later. */
const UNSAFE_SETTINGS = {
  synchronous_commit: 'off',
  session_replication_role: 'replica',
  row_security: 'off',
};

/**
 * Rejects a connection through a transaction pooler, and settings that break the registry. The pooler drops the
 * connection's settings and gives session-level locks to the next client.
 */
export async function requireOwnSession(sql: Db): Promise<void> {
  const [row] = await mapStartupDbErrors(
    () => sql<{ arrived: boolean; unsafe: string[] }[]>`
      select current_setting('enable_seqscan') = 'off' as arrived,
        array(select key || ' = ' || value from jsonb_each_text(${JSON.stringify(UNSAFE_SETTINGS)}::text::jsonb)
          where current_setting(key) = value) as unsafe`,
  );
  if (row?.arrived !== true)
    throw new DatabaseUnusableError(
      'the connection settings did not reach PostgreSQL: a connection pooler is in between. Connect to PostgreSQL directly or ' +
        'through a TCP proxy; for a pooler in session mode, set enable_seqscan = off for the role',
    );
  if (row.unsafe.length > 0)
    throw new DatabaseUnusableError(
      `PostgreSQL has unsafe settings for this role: ${row.unsafe.join(', ')}. Reset them (alter role … reset, alter database … reset, or postgresql.conf), and start the program again`,
    );
}

/**
 * Whether the server is in recovery: a standby, or a restore that still replays WAL, answers queries
 * but accepts no writes. Leaves that this server lacks may still arrive.
 */
export const isInRecovery = (sql: Db): Promise<boolean> => valueOf(sql`select pg_is_in_recovery()`);

/** Rejects while the server accepts no writes; for a read-only session with 25006, so that the pool discards it. */
export async function requirePrimary(sql: Db): Promise<void> {
  if (await isInRecovery(sql))
    throw new DatabaseUnavailableError(
      'the server in DATABASE_URL is in recovery: it is a standby, or replays a backup. Promote it, or change DATABASE_URL to the primary',
    );
  await sql`do $$ begin
    if current_setting('transaction_read_only')::boolean then
      raise read_only_sql_transaction using message = 'the database is read-only: default_transaction_read_only is on. '
        'Free disk space if the disk is full, and reset default_transaction_read_only';
    end if;
  end $$`;
}

/** The database's time, in epoch milliseconds: every time in the log comes from its clock. */
export const databaseTime = async (sql: Db): Promise<number> =>
  (await valueOf<Date>(sql`select date_trunc('milliseconds', clock_timestamp())`)).getTime();

/** An id with its tenant: the query sees only rows of that tenant. */
export interface OwnId {
  tenantNo: number;
  id: string;
}

/**
 * Runs `work` in one transaction in which row-level security shows only the rows of these tenants.
 * Elsewhere the engine's role sees no tenant rows, so neither a forgotten tenant predicate nor an
 * injected query can expose another tenant.
 *
 * Never nest calls: when outer calls hold every connection, inner calls deadlock.
 *
 * @param opening reads that share the round trip that sets the scope
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

/** Like `asTenants`, for one read-only statement in one round trip. */
export const readAsTenants = oneAsTenants((tx) => tx`begin read only`);

/**
 * Runs one statement with the rights of these tenants, and commits it in the same round trip, so that
 * no lock is held while the database waits for this process.
 */
export const changeAsTenants = oneAsTenants((tx) => tx`begin isolation level read committed`);

/**
 * The statement must be harmless when it runs outside the transaction and without its scope: after DDL the
 * driver prepares a statement again and resends it after the commit, and the returned function throws.
 */
function oneAsTenants(begin: (tx: Transaction) => Statement<unknown>) {
  return <T>(
    sql: Pool,
    tenants: readonly number[],
    statement: (tx: Transaction) => Statement<T>,
  ): Promise<T> =>
    onReservedConnection(sql, async (tx) => {
      const sent = [begin(tx), scopeTo(tx, tenants), statement(tx), tx`commit`] as const;
      const [, , result, committed] = await pipeline(...sent);
      requireCommit(committed);
      return result;
    });
}

const scopeTo = (tx: Transaction, tenants: readonly number[]) => tx`
  select set_config('svc.tenants', ${scopeOf(tenants)}, true)`;

/** The value of the setting `svc.tenants`, for database functions that set it themselves. */
export const scopeOf = (tenants: readonly number[]): string =>
  `{${[...new Set(tenants)].join(',')}}`;
