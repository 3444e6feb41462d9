import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readIndexStatement, type IndexStatement } from './index-migration.js';
import { SchemaMismatchError } from './version.js';

export interface Migration {
  version: number;
  name: string;
  text: string;
  digest: string;
  /** Earlier versions must not use the migrated schema; marked at the top as `-- breaking: why`. */
  breaking: boolean;
  /** The statement to run outside a transaction; marked as `-- outside a transaction: why`. */
  outside: IndexStatement | null;
}

/** The numbered SQL files of a folder, in order: `0001_name.sql`, without a gap. */
export async function readMigrations(folder: string): Promise<Migration[]> {
  const migrations = await Promise.all(
    (await migrationNames(folder)).map(async (name) => {
      const text = await readFile(join(folder, name), 'utf8');
      const digest = createHash('sha256').update(text).digest('hex');
      const marked = (mark: string) => new RegExp(`^(--.*\\n)*-- ${mark}: \\S`).test(text);
      const outside = marked('outside a transaction') ? readIndexStatement(name, text) : null;
      const version = Number(name.slice(0, 4));
      return { version, name, text, digest, breaking: marked('breaking'), outside };
    }),
  );
  migrations.forEach((migration, index) => {
    if (migration.version !== index + 1) {
      throw new SchemaMismatchError(`migration ${migration.name} is out of sequence`);
    }
  });
  return migrations;
}

export async function migrationNames(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort();
}
