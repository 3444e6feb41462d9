import type postgres from 'postgres';
import { DatabaseUnusableError, isConnectionLost, mapDbErrors, mapStartupDbErrors } from './errors.js';

/** A pool or a transaction: what every query function takes first. */
export type Db = postgres.ISql<{ bigint: number }>;
/** A pool, for functions that open a transaction of their own. */
export type Pool = { reserve(): Promise<Transaction> } & postgres.Sql<{ bigint: number }>;
/** An open transaction, for functions that must be called inside one. */
export type Transaction = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes its connection, instead of giving it back with `release`. */
  destroy(): void;
};

/**
 * Runs `work` in one transaction: committed when it returns, rolled back when it throws. Between
 * its statements `work` waits for nothing but the database.
 *
 * A connection that is lost has rolled back by itself, and is thrown away with whatever the driver
 * still remembers of it.
 *
 * @throws DatabaseUnavailableError when the connection is lost. If that happens while committing,
 *   whether the transaction took place is not known: whoever retries must be able to do it twice.
 */
export function transaction<T>(sql: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return openedTransaction(sql, () => Promise.resolve(), work);
}

/**
 * The same, with what `opening` asks sent right behind `begin`, and not after its answer. It may read,
 * and set what is local to the transaction: were `begin` to fail, it would take place outside of one.
 */
export function openedTransaction<O, T>(
  sql: Pool,
  opening: (tx: Transaction) => Promise<O>,
  work: (tx: Transaction, opened: O) => Promise<T>,
): Promise<T> {
  return reserved(sql, async (connection) => {
    const begun = connection`begin`.execute();
    const [, opened] = await pipeline(begun, opening(connection));
    const result = await work(connection, opened);
    const { command } = await connection`commit`;
    // What the database calls it when a statement had failed and `work` went on all the same.
    if (command !== 'COMMIT') throw new Error('a statement failed, so nothing was committed');
    return result;
  });
}

/** A transaction that only reads, and is sent whole: `setting` and `reading` are a statement each. */
export function readTransaction<T>(
  sql: Pool,
  setting: (tx: Transaction) => Statement<unknown>,
  reading: (tx: Transaction) => Statement<T>,
): Promise<T> {
  return reserved(sql, async (connection) => {
    const [, , found, { command }] = await pipeline(
      connection`begin read only`,
      setting(connection),
      reading(connection),
      connection`commit`,
    );
    // The driver asks anew what it had prepared for a table that is different by now. That is behind the
    // commit here, where nothing of `setting` holds any more: what was found then is not what is there.
    if (command !== 'COMMIT') throw new Error('a statement failed, so nothing was read');
    return found;
  });
}

/** One view of the database for all that `work` reads, however long that takes: nothing in it moves. */
export function readSnapshot<T>(sql: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return reserved(sql, async (connection) => {
    await connection`begin isolation level repeatable read read only`;
    const result = await work(connection);
    await connection`commit`;
    return result;
  });
}

/** Not sent before it is waited for. */
export interface Statement<T> extends Promise<T> {
  execute(): unknown;
}

/** Uses a connection that is nobody else's meanwhile; when `work` throws, nothing of it stays. */
function reserved<T>(sql: Pool, work: (connection: Transaction) => Promise<T>): Promise<T> {
  return mapDbErrors(async () => {
    const connection = await sql.reserve();
    try {
      const result = await work(connection);
      connection.release();
      return result;
    } catch (error) {
      await rollBack(connection, error);
      throw error;
    }
  });
}

/**
 * Statements of one transaction that do not wait for each other's answers: they are sent one behind
 * the other and take place in that order. Returns when all have ended, also when one fails: nothing
 * of a transaction may still be under way when it is rolled back.
 *
 * @throws what the first of them in the list failed with, which is why those behind it did
 */
export async function pipeline<T extends readonly Promise<unknown>[]>(
  ...statements: T
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  const settled = await Promise.allSettled(statements);
  for (const one of settled) if (one.status === 'rejected') throw one.reason as Error;
  return Promise.all(statements);
}

async function rollBack(connection: Transaction, error: unknown): Promise<void> {
  if (isConnectionLost(error)) {
    connection.destroy();
    return;
  }
  try {
    await connection`rollback`;
    connection.release();
  } catch {
    connection.destroy();
  }
}

/**
 * Refuses a connection on whose other end something else than a session of its own is: a pooler that
 * lends sessions by the transaction. What is set with the connection does not arrive through one, and
 * a session's lock would be held by whoever comes next.
 */
export async function requireOwnSession(sql: Db): Promise<void> {
  const [row] = await mapStartupDbErrors(
    () => sql<{ arrived: boolean }[]>`select current_setting('enable_seqscan') = 'off' as arrived`,
  );
  if (row?.arrived === true) return;
  throw new DatabaseUnusableError(
    'the settings of the connection did not reach PostgreSQL: a pooler stands between. Connect straight to it, or through ' +
      'what passes connections on as they are; behind a pooler in session mode, set enable_seqscan = off for the role',
  );
}
