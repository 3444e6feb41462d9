import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Publisher } from '#publisher/publisher';
import { scrub } from '#workers/verify/scrub';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { checked } from '../fixtures/planted.js';
import { SqlSnapshot } from '../fixtures/sql-publisher.js';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('file');
const snapshot = new SqlSnapshot(db);
let world: EventfulRegistry;
let publisher: Publisher;

beforeAll(async () => {
  world = await EventfulRegistry.open(db);
  publisher = snapshot.publisher();
  await world.begin(publish);
});
afterAll(() => snapshot.close());

async function publish(): Promise<void> {
  await world.registry.verifyAll();
  await publisher.runCycle();
}

it('fsck > finds no corruption before the verifier sees a compromised key, nor before and after re-verification', async () => {
  const { verify } = world.registry;
  await world.registry.changeKey('compromise', 100);
  await publisher.runCycle();
  const env = {
    DATABASE_URL: db.urlFor('svc_fsck'),
    SNAPSHOT_DIR: snapshot.directory,
    DATA_DIR: join(snapshot.directory, 'state'),
    LOG_VKEY: snapshot.logVkey,
    SNAPSHOT_VKEY: snapshot.snapshotVkey,
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
