import type { Transaction } from '../db/transaction.js';
import { SchemaMismatchError } from './version.js';

/** The one statement of a migration that runs outside of a transaction. */
export interface IndexStatement {
  /** Of the schema `svc`. */
  index: string;
  does: 'create' | 'drop';
}

const NAME = '([a-z_][a-z0-9_]*)';
const CREATE = new RegExp(
  `^create (?:unique )?index concurrently ${NAME} on svc\\.${NAME}\\b[^;]*$`,
);
const DROP = new RegExp(`^drop index concurrently if exists svc\\.${NAME}$`);

/**
 * Only what can be begun again wherever it ended: an index that is built, by its name, or taken away
 * if it is there. `if not exists` would take an index for built that a failed build left behind.
 */
export function readIndexStatement(migration: string, text: string): IndexStatement {
  const statement = text
    .replace(/--.*/g, ' ')
    .replace(/\s+/g, ' ')
    .replace(/ ?; ?$/, '')
    .trim();
  const created = CREATE.exec(statement)?.[1];
  const index = created ?? DROP.exec(statement)?.[1];
  if (index === undefined) {
    throw new SchemaMismatchError(
      `migration ${migration} is to run outside of a transaction, and is not one statement of the form "create [unique] index concurrently <name> on svc.<table> …" or "drop index concurrently if exists svc.<name>"`,
    );
  }
  return { index, does: created === undefined ? 'drop' : 'create' };
}

/**
 * Builds or drops it; programs read and write the table meanwhile. An index of that name is first taken
 * away: one that is invalid was left by a build that failed, and one that is valid by somebody who
 * died before the migration was recorded, or was made by hand, as whatever.
 *
 * Postgres waits for transactions that are older than each of its steps, by locks that nobody else
 * queues behind. So unlike other migrations it waits for long.
 */
export async function runIndexStatement(
  connection: Transaction,
  text: string,
  { index, does }: IndexStatement,
  waitMs: number,
): Promise<void> {
  await connection.unsafe(`set lock_timeout = ${Math.max(1, Math.ceil(waitMs))}`);
  try {
    if (does === 'create') {
      await connection.unsafe(`drop index concurrently if exists svc.${index}`);
    }
    await connection.unsafe(text);
  } finally {
    await connection.unsafe('set lock_timeout = 0');
  }
}
