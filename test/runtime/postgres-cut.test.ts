import { connect as connectSocket, createServer, Socket, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DatabaseLease } from '#publisher/registry/lease';
import { connect, type Sql } from '#runtime/postgres/connect';
import { hardenSocket } from '#runtime/postgres/driver-socket';
import { withTimeout } from '#runtime/concurrency/promises';
import { isUnavailable } from '#sql/db/errors';
import { serveTls, skipsTls } from '../fixtures/database-tls.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { unhandledIn } from '../fixtures/unhandled.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';

let db: TestDatabase;
beforeAll(async () => {
  db = await freshDatabase();
  if (!skipsTls) await serveTls();
});
afterAll(() => db.drop());

const late = () => new Error('never answered');

/** Resolves with the result or the error: these tests only require that a statement settles. */
function outcomeOf(statement: Promise<unknown>): Promise<unknown> {
  return withTimeout(
    statement.catch((reason: unknown) => reason),
    4_000,
    late,
  );
}

async function untilAnswered(sql: Sql): Promise<void> {
  const deadline = performance.now() + 5_000;
  for (;;) {
    const outcome = await outcomeOf(sql`select 1 as one`);
    if (!(outcome instanceof Error)) return;
    expect(isUnavailable(outcome)).toBe(true);
    expect(performance.now()).toBeLessThan(deadline);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const ways = [
  { over: 'TCP', query: '', skip: false },
  {
    over: `TLS${skipsTls ? ' (skipped: no openssl here)' : ''}`,
    query: '?sslmode=require',
    skip: skipsTls,
  },
];

describe.each(ways)('a connection cut over $over', ({ query, skip }) => {
  beforeEach(({ skip: leaveOut }) => leaveOut(skip));
  const target = (role: string): URL => new URL(`${db.urlFor(role)}${query}`);

  it.each(['reset', 'end'] as const)('fails statements sent in the same tick (%s)', async (how) => {
    const way = await startTcpProxy(target('svc_engine'));
    const sql = connect(way.url, { application: 'test', max: 1 });
    for (let time = 0; time < 10; time += 1) {
      await untilAnswered(sql);
      const owed = sql`select pg_sleep(5)`.execute();
      setTimeout(() => way.cut(how), 20);
      expect(isUnavailable(await outcomeOf(owed))).toBe(true);
      const answer = await outcomeOf(sql`select ${time}::int as asked`);
      if (answer instanceof Error) expect(isUnavailable(answer)).toBe(true);
      else expect(answer).toEqual([{ asked: time }]);
    }
    await sql.end({ timeout: 1 });
    way.close();
  });

  it('is greeted again after a buffered write', async () => {
    const way = await startTcpProxy(target('svc_engine'));
    const sql = connect(way.url, { application: 'test', max: 1 });
    for (let time = 0; time < 2; time += 1) {
      await untilAnswered(sql);
      const state = { isOver: false, asked: [] as Promise<unknown>[] };
      const askAgain = (): void => {
        if (state.isOver) return;
        state.asked.push(outcomeOf(sql`select 2`));
        setImmediate(askAgain);
      };
      askAgain();
      setTimeout(() => way.cut('reset'), 20);
      await new Promise((resolve) => setTimeout(resolve, 40));
      state.isOver = true;
      await Promise.all(state.asked);
      const began = performance.now();
      await untilAnswered(sql);
      expect(performance.now() - began).toBeLessThan(2_500);
    }
    await sql.end({ timeout: 1 });
    way.close();
  });

  it.each(['reset', 'end'] as const)(
    'fails statements while connection attempts are refused (%s)',
    async (how) => {
      const way = await startTcpProxy(target('svc_engine'));
      const sql = connect(way.url, { application: 'test', max: 2 });
      await untilAnswered(sql);
      way.state.refuses = how;
      way.cut(how);
      for (let time = 0; time < 4; time += 1) {
        expect(isUnavailable(await outcomeOf(sql`select 1`))).toBe(true);
        const reserved = sql.reserve().then((line) => line`select 1`.finally(() => line.destroy()));
        expect(isUnavailable(await outcomeOf(reserved))).toBe(true);
      }
      way.state.refuses = null;
      await untilAnswered(sql);
      await sql.end({ timeout: 1 });
      way.close();
    },
  );

  it("releases the publisher's lock promptly", async () => {
    const way = await startTcpProxy(target('svc_publisher'));
    const sql = connect(way.url, { application: 'test', max: 1 });
    const claim = new DatabaseLease(sql);
    for (let time = 0; time < 20; time += 1) {
      const deadline = performance.now() + 4_000;
      while ((await outcomeOf(claim.take())) !== true) {
        expect(performance.now()).toBeLessThan(deadline);
      }
      const taking = outcomeOf(claim.take());
      setImmediate(() => way.cut('reset'));
      await taking;
    }
    await sql.end({ timeout: 1 });
    way.close();
  });
});

it('a connection cut during session start > fails the waiting statement and causes no unhandled rejection', async () => {
  const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
  way.state.cutsFirstQuery = true;
  const sql = connect(way.url, { application: 'test', max: 1 });
  const unhandled = await unhandledIn(async () => {
    expect(isUnavailable(await outcomeOf(sql`select 1`))).toBe(true);
    const reserved = sql.reserve().then((line) => line`select 1`.finally(() => line.destroy()));
    expect(isUnavailable(await outcomeOf(reserved))).toBe(true);
  });
  expect(unhandled).toEqual([]);
  await sql.end({ timeout: 1 });
  way.close();
});

it('hardenSocket > emits close in the same tick as error', () => {
  const heard: unknown[] = [];
  const socket = hardenSocket(new Socket());
  socket.on('error', (error: Error) => heard.push(error.message));
  socket.on('close', (hadError: boolean) => heard.push(hadError));
  socket.emit('error', new Error('cut'));
  expect(heard).toEqual([]);
  socket.emit('close', true);
  expect(heard).toEqual(['cut', true]);
});

it('hardenSocket > ends an ungreeted connection without an error, so that the next one is greeted', async () => {
  const server = createServer((socket) => void socket.on('error', () => undefined));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const [forgotten, greeted] = [0, 1].map(() => hardenSocket(connectSocket(port, '127.0.0.1')));
  greeted!.write('hello');
  const events: unknown[] = [];
  forgotten!.on('error', (error) => events.push(error));
  await new Promise<void>((resolve) => forgotten!.on('close', () => resolve()));
  expect(events).toEqual([]);
  expect(greeted!.destroyed).toBe(false);
  greeted!.destroy();
  server.close();
});
