import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openAdmitQueue, QueueUnavailableError } from '#runtime/queue/queues';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { ANY_STATEMENT, TcpProxy } from '../fixtures/tcp-proxy.js';
import { unhandledIn } from '../fixtures/unhandled.js';

/** Slow tests that run concurrently, each with its own queue. */

const PROOF_ID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const log = { warn: () => undefined };
const unreachable = 'postgres://user:x@127.0.0.1:1/none';

let db: TestDatabase;

beforeAll(async () => {
  db = await freshDatabase();
});
afterAll(async () => {
  await db.drop();
});

describe.concurrent.each([
  { name: 'Postgres', config: { databaseUrl: unreachable, redisUrl: null } },
  { name: 'Redis', config: { databaseUrl: unreachable, redisUrl: 'redis://127.0.0.1:1' } },
])('unreachable queue on $name', ({ config }) => {
  it('rejects new jobs within seconds', async ({ expect }) => {
    const queue = openAdmitQueue(config, { log });
    const began = Date.now();
    await expect(queue.addRevocations([PROOF_ID])).rejects.toBeInstanceOf(QueueUnavailableError);
    await expect(queue.ping()).rejects.toBeInstanceOf(QueueUnavailableError);
    await queue.close();
    expect(Date.now() - began).toBeLessThan(15_000);
    await expect(queue.addRevocations([PROOF_ID])).rejects.toBeInstanceOf(QueueUnavailableError);
  });
});

it('queue client on Postgres > reports an error without ending the process when the connection is lost while the client opens', async () => {
  const url = db.urlFor('svc_engine');
  const proxy = await TcpProxy.open(url, 'postgres');
  void proxy.set(ANY_STATEMENT, Infinity);
  const queue = openAdmitQueue({ databaseUrl: proxy.urlFor(url), redisUrl: null }, { log });
  const unhandled = await unhandledIn(() =>
    expect(queue.ping()).rejects.toBeInstanceOf(QueueUnavailableError),
  );
  expect(unhandled).toEqual([]);
  proxy.clear();
  await queue.ping();
  await queue.close();
  await proxy.close();
});
