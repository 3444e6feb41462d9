import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/package-root';
import { describeSchema } from '#sql/describe';
import { migrate, SchemaMismatchError } from '#sql/migrate';
import { freshDatabase, type TestDatabase } from './helpers/database.js';

const migrations = join(packageRoot, 'sql', 'migrations');

describe('schema', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await freshDatabase();
  });
  afterAll(() => db.drop());

  it('is what sql/schema.txt says', async () => {
    const file = join(packageRoot, 'sql', 'schema.txt');
    const found = await describeSchema(db.sql);
    if (process.env['UPDATE_SCHEMA'] === '1') await writeFile(file, found);
    expect(found).toBe(await readFile(file, 'utf8'));
  });

  it('is not migrated twice', async () => {
    expect(await migrate(db.sql, migrations)).toEqual([]);
  });

  it('is refused when a newer version made it', async () => {
    await db.sql`insert into public.svc_migration (version, name, digest) values (9999, '9999_from_the_future.sql', '')`;
    await expect(migrate(db.sql, migrations)).rejects.toThrow(SchemaMismatchError);
    await db.sql`delete from public.svc_migration where version = 9999`;
  });

  it('is refused when an applied migration had another text', async () => {
    await db.sql`update public.svc_migration set digest = 'other' where version = 1`;
    await expect(migrate(db.sql, migrations)).rejects.toThrow(/another text/);
  });
});
