import { randomBytes } from 'node:crypto';
import type { PolicyFiles } from '#sql/admissions/policies';
import type { TestDatabase } from './database.js';

/**
 * Stores a set under a digest that nothing of this version amounts to, as one that was made with
 * another Cedar is.
 */
export async function storeForeignSet(db: TestDatabase, files: PolicyFiles): Promise<Buffer> {
  const digest = randomBytes(32);
  const manifest = JSON.stringify({ engine: 'cedar', engine_version: '3.9.9' });
  await db.sql`
    insert into svc.policy_set (digest, manifest, files)
    values (${digest}, ${manifest}, ${db.sql.json(files as never)})`;
  return digest;
}
