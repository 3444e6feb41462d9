import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'vitest';
import { adminOn, type AdminLine } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';

/** Fixtures that the tests of one file share. Each is set up on first use. */
interface Shared {
  /** A folder that other users may enter. */
  home: string;
  db: TestDatabase;
  registry: TestRegistry;
  /** The admin command line, as for a script. */
  admin: AdminLine;
  /** The admin command line, as at a terminal. */
  person: AdminLine;
}

export const it = test.extend<{ $file: Shared }>({
  home: [
    async ({}, use) => {
      const home = await mkdtemp(join(tmpdir(), 'svc-programs-'));
      await chmod(home, 0o755);
      await use(home);
      await rm(home, { recursive: true, force: true });
    },
    { scope: 'file' },
  ],
  db: [
    async ({}, use) => {
      const db = await freshDatabase();
      await use(db);
      await db.drop();
    },
    { scope: 'file' },
  ],
  registry: [async ({ db }, use) => use(await openRegistry(db)), { scope: 'file' }],
  admin: [({ db }, use) => use(adminOn(db)), { scope: 'file' }],
  person: [({ db }, use) => use(adminOn(db, { isTerminal: true })), { scope: 'file' }],
});
