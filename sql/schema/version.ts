import type { Db } from '../db/transaction.js';
import { mapStartupDbErrors } from '../db/errors.js';

/** The database's schema is not one that this version can work with. */
export class SchemaMismatchError extends Error {
  override readonly name = 'SchemaMismatchError';
  readonly forOperator = true;
}

/**
 * Refuses to go on where the schema lacks a migration of this version, and where a later version
 * made one that says it breaks earlier programs. Other later ones only add, and are worked with:
 * that is how programs serve on while a newer version migrates.
 *
 * @param known how many migrations this version has
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
  // As JSON, since a runner of before the column made the table without it.
  const [row] = await mapStartupDbErrors(
    () => sql<{ version: number; breaking: string | null }[]>`
      select coalesce(max(version), 0) as version,
        min(name) filter (where version > ${known} and (to_jsonb(m) ->> 'breaking')::boolean) as breaking
      from public.svc_migration m`,
  );
  const version = row?.version ?? 0;
  if (version < known) {
    throw new SchemaMismatchError(
      `the database has ${version} migrations, this version needs ${known}: run migrate of this version as its owner (npm run migrate), and start the program again`,
    );
  }
  if (typeof row?.breaking === 'string') {
    throw new SchemaMismatchError(
      `the database has migration ${row.breaking}, with which programs of this version must not work: run the version that made it, or a newer one`,
    );
  }
  return { ahead: version > known };
}
