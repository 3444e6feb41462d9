import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SchemaMismatchError } from './schema-version.js';

export interface Migration {
  version: number;
  name: string;
  text: string;
  digest: string;
  /** Programs of earlier versions must not work with it: a comment at its top says `-- breaking: why`. */
  breaking: boolean;
}

/** The numbered SQL files of a folder, in order: `0001_name.sql`, without a gap. */
export async function readMigrations(folder: string): Promise<Migration[]> {
  const migrations = await Promise.all(
    (await migrationNames(folder)).map(async (name) => {
      const text = await readFile(join(folder, name), 'utf8');
      const digest = createHash('sha256').update(text).digest('hex');
      const breaking = /^(--.*\n)*-- breaking: \S/.test(text);
      return { version: Number(name.slice(0, 4)), name, text, digest, breaking };
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
