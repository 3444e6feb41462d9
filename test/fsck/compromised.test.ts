import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { formatVkey } from '#protocol/note';
import type { Publisher } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendKeyChange } from '#sql/lifecycle/entries';
import { scrub } from '#workers/verify/scrub';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { checked } from '../fixtures/planted.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';

const home = mkdtempSync(join(tmpdir(), 'svc-fsck-'));
const directory = join(home, 'public');
const [logKey, snapshotKey] = [testKey(), testKey()];
let db: TestDatabase;
let world: EventfulRegistry;
let publisher: Publisher;

beforeAll(async () => {
  db = await freshDatabase();
  world = await EventfulRegistry.open(db);
  publisher = sqlPublisher(db.as('svc_publisher'), { directory, logKey, snapshotKey });
  await world.begin(publish);
});
afterAll(async () => {
  await publisher.close();
  await db.drop();
  rmSync(home, { recursive: true });
});

async function publish(): Promise<void> {
  await world.registry.verifyAll();
  await publisher.runCycle();
}

it('fsck > finds nothing corrupt before the verifier sees a compromised key, and before and after it verifies the proofs again', async () => {
  const { admit, admin, verify } = world.registry;
  await appendKeyChange(admin, nativeSha256, {
    keyId: admit.keyId,
    publicKey: toBase64Url(admit.signer.publicKey),
    change: 'compromise',
    fromIndex: 100,
  });
  await publisher.runCycle();
  const env = {
    DATABASE_URL: db.urlFor('svc_fsck'),
    SNAPSHOT_DIR: directory,
    DATA_DIR: home,
    LOG_VKEY: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
    SNAPSHOT_VKEY: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
    SNAPSHOT_TTL: '60s',
  };
  expect((await checked(env)).corrupt).toEqual({});
  const { document, corrupt } = await checked(
    { ...env, DATABASE_URL: '' },
    ...['--only', 'snapshot'],
  );
  expect(corrupt).toEqual({});
  expect(document['left_out']).toContainEqual(expect.stringContaining('from leaf 100 on'));
  await publish();
  expect((await checked(env)).corrupt).toEqual({});
  while ((await scrub(verify, 1000)).urgent);
  await publish();
  expect((await checked(env)).corrupt).toEqual({});
});
