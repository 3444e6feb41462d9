import type postgres from 'postgres';

/** A pool or a transaction: what every query function takes first. */
export type Db = postgres.ISql<{ bigint: number }>;
/** A pool, for functions that open a transaction of their own. */
export type Pool = { reserve(): Promise<Transaction> } & postgres.Sql<{ bigint: number }>;
/** An open transaction, for functions that must be called inside one. */
export type Transaction = postgres.ReservedSql<{ bigint: number }> & {
  /** Closes its connection, instead of giving it back with `release`. */
  destroy(): void;
};
