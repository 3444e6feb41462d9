import type { Db } from '../db/transaction.js';
import { mapStartupDbErrors } from '../db/errors.js';

export class SchemaMismatchError extends Error {
  override readonly name = 'SchemaMismatchError';
  readonly forOperator = true;
}

/**
 * Rejects a schema that lacks a migration of this version, or has a later one marked as breaking. Other
 * later migrations only add, so programs can serve while a newer version migrates.
 *
 * @param known the number of migrations of this version
 * @returns whether the database has migrations that this version does not know
 */
export async function requireSchema(sql: Db, known: number): Promise<{ ahead: boolean }> {
  const [list] = await mapStartupDbErrors(
    () => sql<{ there: boolean }[]>`
      select to_regclass('public.svc_migration') is not null as there`,
  );
  if (list?.there !== true) {
    throw new SchemaMismatchError('the database has no registry yet: run migrate as its owner');
  }
  const [row] = await mapStartupDbErrors(
    () => sql<{ version: number; breaking: string | null }[]>`
      select coalesce(max(version), 0) as version,
        min(name) filter (where version > ${known} and breaking) as breaking
      from public.svc_migration`,
  );
  const version = row?.version ?? 0;
  if (version < known) {
    throw new SchemaMismatchError(
      `the database has ${version} migrations, this version needs ${known}: run migrate of this version as its owner (npm run migrate), and start the program again`,
    );
  }
  if (typeof row?.breaking === 'string') {
    throw new SchemaMismatchError(
      `the database has the breaking migration ${row.breaking}, which this version does not support: run the version that created it, or a newer one`,
    );
  }
  return { ahead: version > known };
}
