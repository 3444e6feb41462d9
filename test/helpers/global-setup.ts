import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import type { TestProject } from 'vitest/node';
import { startEmbeddedPostgres } from '#runtime/embedded/start';
import { migrateDatabase, PROGRAM_ROLES } from '#programs/migrate-database';

export const TEMPLATE = 'svc_template';

declare module 'vitest' {
  interface ProvidedContext {
    /** Superuser URL of the run's Postgres, and each role's password. */
    postgres: { url: string; passwords: Record<string, string> };
  }
}

/** One real Postgres for the run, with a migrated template that each test file clones. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = await mkdtemp(join(tmpdir(), 'svc-test-'));
  // Within reach of the user that Postgres runs as when the tests run as root.
  await chmod(dataDir, 0o755);
  // Room for the pools of as many files as run at once.
  const settings = { fsync: 'off', max_connections: '300' };
  const server = await startEmbeddedPostgres({ dataDir, settings });
  const admin = postgres(server.superuserUrl, { max: 1, onnotice: () => undefined });
  await admin`create database ${admin(TEMPLATE)}`;
  await migrateDatabase(server.urlFor('postgres', TEMPLATE), (role) => server.rolePassword(role));
  await admin.end();
  project.provide('postgres', {
    url: server.superuserUrl,
    passwords: Object.fromEntries(PROGRAM_ROLES.map((role) => [role, server.rolePassword(role)])),
  });
  return async () => {
    await server.destroy();
    await rm(dataDir, { recursive: true, force: true, maxRetries: 10 });
  };
}
