import { afterAll, beforeAll, expect, it } from 'vitest';
import { openAdmitQueue, QueueUnavailableError } from '#runtime/queue/queues';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { unhandledIn } from '../fixtures/unhandled.js';

let db: TestDatabase;
beforeAll(async () => {
  db = await freshDatabase();
});
afterAll(() => db.drop());

it('a queue client on Postgres > reports an unreachable queue, without ending the process, when its connection is lost while opening', async () => {
  const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
  way.state.cutsFirstQuery = true;
  const log = { warn: () => undefined };
  const queue = openAdmitQueue({ databaseUrl: way.url, redisUrl: null }, { log });
  const unhandled = await unhandledIn(() =>
    expect(queue.ping()).rejects.toBeInstanceOf(QueueUnavailableError),
  );
  expect(unhandled).toEqual([]);
  way.state.cutsFirstQuery = false;
  await queue.ping();
  await queue.close();
  way.close();
});
