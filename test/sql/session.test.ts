import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { assertDatabase } from '#programs/database';
import type { Pool } from '#sql/db/transaction';
import { DatabaseUnusableError } from '#sql/db/errors';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';

let db: TestDatabase;
beforeAll(async () => {
  db = await freshDatabase();
});
afterAll(() => db.drop());

it('a connection whose settings did not arrive is refused, as through a pooler by the transaction', async () => {
  await expect(assertDatabase(db.as('svc_publisher'), 'publisher')).resolves.toBeUndefined();
  // What is left of a connection when a pooler was told to ignore what programs send with it.
  const pooled = postgres(db.urlFor('svc_publisher'), { max: 1 }) as unknown as Pool;
  await expect(assertDatabase(pooled, 'publisher')).rejects.toThrow(DatabaseUnusableError);
  await expect(assertDatabase(pooled, 'publisher')).rejects.toThrow(
    'a connection pooler is in between',
  );
  await pooled.end();
});
