import postgres from 'postgres';
import { expect, it } from 'vitest';
import { assertDatabase } from '#programs/database';
import type { Pool } from '#sql/db/transaction';
import { DatabaseUnusableError } from '#sql/db/errors';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('file');

it('assertDatabase > rejects a connection without its session settings, such as one through a transaction pooler', async () => {
  await expect(assertDatabase(db.as('svc_publisher'), 'publisher')).resolves.toBeUndefined();
  // Like a connection through a pooler that drops start-up parameters.
  const pooled = postgres(db.urlFor('svc_publisher'), { max: 1 }) as unknown as Pool;
  await expect(assertDatabase(pooled, 'publisher')).rejects.toThrow(DatabaseUnusableError);
  await expect(assertDatabase(pooled, 'publisher')).rejects.toThrow(
    'a connection pooler is in between',
  );
  await pooled.end();
});
