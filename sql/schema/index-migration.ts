import type { Transaction } from '../db/transaction.js';
import { SchemaMismatchError } from './version.js';

/** The single statement of a migration that runs outside a transaction. */
export interface IndexStatement {
  index: string;
  does: 'create' | 'drop';
}

const NAME = '([a-z_][a-z0-9_]*)';
const CREATE = new RegExp(
  `^create (?:unique )?index concurrently ${NAME} on svc\\.${NAME}\\b[^;]*$`,
);
const DROP = new RegExp(`^drop index concurrently if exists svc\\.${NAME}$`);

/**
 * Accepts only statements that can be repeated after any failure: an index creation, or a drop with
 * `if exists`. `if not exists` would accept the invalid index of a failed build.
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
      `migration ${migration} runs outside a transaction, so it must be one statement of the form "create [unique] index concurrently <name> on svc.<table> …" or "drop index concurrently if exists svc.<name>"`,
    );
  }
  return { index, does: created === undefined ? 'drop' : 'create' };
}

/**
 * Creates or drops the index concurrently. First drops an existing index of that name: a failed build
 * left it, or a run that died before it recorded the migration, or a manual change.
 *
 * PostgreSQL waits for older transactions with locks that do not queue other statements, so unlike
 * other migrations this one may wait long.
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
