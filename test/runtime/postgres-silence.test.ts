import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import { monitorPool } from '#runtime/postgres/pool-monitor';
import { TaskWatchdog, HungError } from '#runtime/process/watchdog';
import { isUnavailable } from '#sql/db/errors';
import { serveTls, skipsTls } from '../fixtures/database-tls.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';

let db: TestDatabase;
beforeAll(async () => {
  db = await freshDatabase();
  if (!skipsTls) await serveTls();
});
afterAll(() => db.drop());

describe('a silent database server', () => {
  const overTls = `over TLS${skipsTls ? ' (skipped: no openssl here)' : ''}`;

  it.each([
    ['over TCP', '', false],
    [overTls, '?sslmode=require', skipsTls],
  ])('is given up, as one that is away, and asked again later, %s', async (_, query, skip) => {
    if (skip) return;
    const way = await startTcpProxy(new URL(`${db.urlFor('svc_engine')}${query}`));
    const sql = connect(way.url, { application: 'test', max: 1, silenceMs: 500 });
    const [row] = await sql`select ssl from pg_stat_ssl where pid = pg_backend_pid()`;
    expect(row?.['ssl']).toBe(query !== '');
    way.state.loses = 'answers';
    const began = performance.now();
    const error: unknown = await sql`select 2`.catch((reason: unknown) => reason);
    expect(isUnavailable(error)).toBe(true);
    expect(performance.now() - began).toBeLessThan(3_000);
    way.state.loses = 'nothing';
    expect(await sql`select 3 as three`).toEqual([{ three: 3 }]);
    await sql.end({ timeout: 1 });
    way.close();
  });

  it('ends a program whose statements never complete', async () => {
    const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
    const sql = connect(way.url, { application: 'test', silenceMs: 0 });
    const hung: HungError[] = [];
    const told = new AbortController();
    const asking = monitorPool(sql, {
      signal: told.signal,
      onHung: (error) => hung.push(error),
      stallTimeoutMs: 500,
      everyMs: 20,
    });
    await sql`select 1`;
    way.state.loses = 'answers';
    await expect.poll(() => hung.length, { timeout: 10_000 }).toBe(1);
    told.abort();
    await asking;
    await sql.end({ timeout: 0 });
    way.close();
  });
});

it('pool monitor > ends a program whose transactions never start, although statements complete', async () => {
  const sql = connect(db.urlFor('svc_engine'), { application: 'test', max: 1 });
  await sql.reserve();
  const told = new AbortController();
  const hung = new Promise((resolve) => {
    void monitorPool(sql, {
      signal: told.signal,
      onHung: resolve,
      stallTimeoutMs: 200,
      everyMs: 5,
    });
  });
  expect(await sql`select 1 as one`).toEqual([{ one: 1 }]);
  expect(await hung).toBeInstanceOf(HungError);
  told.abort();
  await sql.end({ timeout: 0 });
});

describe('TaskWatchdog', () => {
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

  it('reports a task that hangs while others complete', async () => {
    const hung: HungError[] = [];
    const ends = new TaskWatchdog({
      what: 'it',
      limitMs: 200,
      onHung: (error) => hung.push(error),
    });
    for (let n = 0; n < 12; n += 1) void ends.watch(() => pause(60));
    await pause(500);
    expect(hung).toEqual([]);
    void ends.watch(() => new Promise(() => undefined));
    for (let n = 0; n < 20 && hung.length === 0; n += 1) await ends.watch(() => pause(50));
    expect(hung).toHaveLength(1);
  });
});
