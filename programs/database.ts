import { join } from 'node:path';
import { connect, type ConnectOptions, type Sql } from '#runtime/postgres/connect';
import { packageRoot } from '#runtime/process/files';
import { type Pool, requireOwnSession } from '#sql/db/transaction';
import { migrationNames, requireSchema } from '#sql/schema/migrate';
import { assertRole, type Program } from '#sql/db/roles';

/** The migrations of this version. */
export const MIGRATIONS = join(packageRoot, 'sql', 'migrations');

/**
 * Checks every program's requirements of its database: sessions that are not pooled, a compatible
 * schema, and a role with no additional privileges.
 */
export async function assertDatabase(sql: Pool, program: Program): Promise<void> {
  await requireOwnSession(sql);
  const { length: known } = await migrationNames(MIGRATIONS);
  await assertRole(sql, program, await requireSchema(sql, known));
}

/** A pool to a database that meets the program's requirements. */
export async function openDatabase(
  url: string,
  program: Program,
  options: ConnectOptions,
): Promise<Sql> {
  const sql = connect(url, options);
  try {
    await assertDatabase(sql, program);
    return sql;
  } catch (error) {
    await sql.end({ timeout: 1 });
    throw error;
  }
}
