import { join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';
import { type Pool, requireOwnSession } from '#sql/db/transaction';
import { migrationNames } from '#sql/schema/folder';
import { assertRole, type Program } from '#sql/db/roles';
import { requireSchema } from '#sql/schema/version';

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
