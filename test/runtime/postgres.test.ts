import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { DatabaseLease } from '#publisher/registry/lease';
import { connect, type ConnectOptions, type Sql } from '#runtime/postgres/connect';
import { packageRoot } from '#runtime/process/files';
import { StallError, TaskWatchdog } from '#runtime/ops/health';
import { withTimeout } from '#runtime/concurrency';
import { isUnavailable } from '#sql/db/errors';
import { selfSigned, serveTls, skipsTls } from '../fixtures/database-tls.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { unhandledIn } from '../fixtures/unhandled.js';
import { ANY_STATEMENT, TcpProxy } from '../fixtures/tcp-proxy.js';

let db: TestDatabase;
beforeAll(async () => {
  db = await freshDatabase();
  if (!skipsTls) await serveTls();
});
afterAll(() => db.drop());

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

function open(url: string, options: Partial<ConnectOptions> = {}): Sql {
  const sql = connect(url, { application: 'test', max: 1, ...options });
  closes.push(() => sql.end({ timeout: 0 }));
  return sql;
}

async function openProxy(
  target: string,
  protocol: 'postgres' | 'other' = 'other',
  onSent?: (bytes: Buffer) => void,
): Promise<[TcpProxy, url: string]> {
  const proxy = await TcpProxy.open(target, protocol, onSent);
  closes.push(() => proxy.close());
  return [proxy, proxy.urlFor(target)];
}

/** Resolves with the result or the error: these tests require only that a statement ends. */
function outcomeOf(statement: Promise<unknown>): Promise<unknown> {
  return withTimeout(
    statement.catch((reason: unknown) => reason),
    4_000,
    () => new Error('the statement did not settle'),
  );
}

async function untilServed(sql: Sql): Promise<void> {
  await expect
    .poll(() => outcomeOf(sql`select 1 as one`), { timeout: 5_000 })
    .toEqual([{ one: 1 }]);
}

const inTransaction = (sql: Sql): Promise<unknown> =>
  sql.reserve().then((tx) => tx`select 1`.finally(() => tx.destroy()));

/** Sends three statements of one transaction without waiting for results in between. */
const inPipeline = (sql: Sql): Promise<unknown> =>
  sql.reserve().then(async (tx) => {
    const statements = [tx`begin`, tx`select 1`, tx`commit`];
    const settled = await Promise.allSettled(statements);
    tx.destroy();
    return settled.find((one) => one.status === 'rejected')?.reason as unknown;
  });

const TRANSPORTS = [
  ['TCP', ''],
  ...(skipsTls ? [] : [['TLS', '?sslmode=require'] as [string, string]]),
] as const;

describe.each(TRANSPORTS)('pool over %s', (_, query) => {
  it.each(['reset', 'end'] as const)(
    'fails statements sent in the event-loop turn of a connection loss, and never resolves them without a result (%s)',
    async (how) => {
      const [proxy, url] = await openProxy(`${db.urlFor('svc_engine')}${query}`);
      const sql = open(url);
      for (let time = 0; time < 10; time += 1) {
        await untilServed(sql);
        const owed = sql`select pg_sleep(5)`.execute();
        setTimeout(() => proxy.breakAll(how), 20);
        expect(isUnavailable(await outcomeOf(owed))).toBe(true);
        const answer = await outcomeOf(sql`select ${time}::int as asked`);
        if (answer instanceof Error) expect(isUnavailable(answer)).toBe(true);
        else expect(answer).toEqual([{ asked: time }]);
      }
    },
  );

  it.each(['reset', 'end'] as const)(
    'fails statements and transactions when the connection is cut and reconnection is refused (%s)',
    async (how) => {
      const [proxy, url] = await openProxy(`${db.urlFor('svc_engine')}${query}`);
      const sql = open(url);
      await untilServed(sql);
      proxy.cut(true, how);
      for (let time = 0; time < 4; time += 1) {
        expect(isUnavailable(await outcomeOf(sql`select 1`))).toBe(true);
        expect(isUnavailable(await outcomeOf(inTransaction(sql)))).toBe(true);
        expect(isUnavailable(await outcomeOf(inPipeline(sql)))).toBe(true);
      }
      proxy.cut(false);
      await untilServed(sql);
    },
  );

  it("releases the publisher's advisory lock when the connection is cut", async () => {
    const [proxy, url] = await openProxy(`${db.urlFor('svc_publisher')}${query}`);
    const lease = new DatabaseLease(open(url));
    for (let time = 0; time < 10; time += 1) {
      await expect.poll(() => outcomeOf(lease.take()), { timeout: 4_000 }).toBe(true);
      const taking = outcomeOf(lease.take());
      setImmediate(() => proxy.breakAll('reset'));
      await taking;
    }
  });

  it("misses the publisher's advisory lock in a session with the process id of the lost session", async () => {
    const sql = open(`${db.urlFor('svc_publisher')}${query}`);
    const lease = new DatabaseLease(sql);
    expect(await lease.take()).toBe(true);
    // Such as a session of the server that replaced the primary: process ids in containers are small.
    await sql`select pg_advisory_unlock_all()`;
    expect(await lease.held()).toBe(false);
    expect(await lease.take()).toBe(true);
    expect(await lease.held()).toBe(true);
  });

  it.each([
    ['a statement', (sql: Sql): Promise<unknown> => sql`select 2`],
    ['a transaction', inTransaction],
  ])('reports a stall when %s gets no response', async (_, send) => {
    const [proxy, url] = await openProxy(`${db.urlFor('svc_engine')}${query}`);
    const stalled: StallError[] = [];
    const sql = open(url, { stallTimeoutMs: 300, onStall: (error) => stalled.push(error) });
    await sql`select 1`;
    await inTransaction(sql);
    proxy.stall(true);
    void send(sql).catch(() => undefined);
    await expect.poll(() => stalled.length, { timeout: 10_000 }).toBe(1);
  });
});

it('pool > causes no unhandled rejection when the connection is cut during session start', async () => {
  const [proxy, url] = await openProxy(db.urlFor('svc_engine'), 'postgres');
  void proxy.set(ANY_STATEMENT, Infinity);
  const sql = open(url);
  const unhandled = await unhandledIn(async () => {
    expect(isUnavailable(await outcomeOf(sql`select 1`))).toBe(true);
    expect(isUnavailable(await outcomeOf(inTransaction(sql)))).toBe(true);
  });
  expect(unhandled).toEqual([]);
});

it.each([
  ['', ''],
  [' in the TLS handshake', '?sslmode=require'],
])('pool > names address and port of a server that does not answer%s', async (_, parameter) => {
  const server = createServer((socket: Socket) => {
    socket.on('error', () => undefined);
    if (parameter !== '') socket.once('data', () => socket.write('S'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closes.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const sql = open(`postgres://someone@127.0.0.1:${String(port)}/svc${parameter}`, {
    connectTimeoutMs: 100,
  });
  const message = `write CONNECT_TIMEOUT 127.0.0.1:${String(port)}`;
  expect(await outcomeOf(sql`select 1`)).toMatchObject({ code: 'CONNECT_TIMEOUT', message });
});

it('TaskWatchdog > reports a task that hangs although others complete', async () => {
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  const stalled: StallError[] = [];
  const onStall = (error: StallError) => stalled.push(error);
  const watchdog = new TaskWatchdog({ task: 'it', limitMs: 200, onStall });
  for (let n = 0; n < 8; n += 1) await watchdog.watch(() => pause(60));
  expect(stalled).toEqual([]);
  void watchdog.watch(() => new Promise(() => undefined));
  for (let n = 0; n < 20 && stalled.length === 0; n += 1) await watchdog.watch(() => pause(50));
  expect(stalled).toEqual([expect.any(StallError)]);
});

/** Returns the code with which a pool rejects a TLS server at 127.0.0.1 with these trusted names. */
async function rejectionOf(names: string): Promise<string> {
  const own = await selfSigned(names);
  const ca = join(tmpdir(), `svc-ca-${process.pid}.pem`);
  await writeFile(ca, own.cert);
  const server = createTlsServer(own, (socket) => socket.on('error', () => undefined).destroy());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closes.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const script = `import { connect } from '#runtime/postgres/connect';
    const sql = connect('postgres://a:b@127.0.0.1:${String(port)}/c?sslmode=verify-full&sslnegotiation=direct', { application: 'test' });
    await sql\`select 1\`.catch(({ code }) => console.log(code));
    process.exit();`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', script],
    { cwd: packageRoot, env: { NODE_EXTRA_CA_CERTS: ca } },
  );
  return stdout.trim();
}

describe('database TLS', () => {
  it('is never replaced by plain text when required', async () => {
    const received: string[] = [];
    const server = createServer((socket: Socket) => {
      socket
        .on('error', () => undefined)
        .on('data', (bytes) => {
          received.push(bytes.toString('latin1'));
          socket.write('N');
        });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closes.push(() => server.close());
    const { port } = server.address() as AddressInfo;
    const url = `postgres://someone:secret@127.0.0.1:${String(port)}/svc?sslmode=require`;
    const sql = open(url, { connectTimeoutMs: 1_000 });
    expect(await outcomeOf(sql`select 1`)).toBeInstanceOf(Error);
    expect(received.join('')).not.toContain('someone');
  });

  it.skipIf(skipsTls)('compares the certificate with the IP address of the server', async () => {
    // The pool accepts this certificate. Then the server closes the connection, with one of two errors.
    expect(['CONNECTION_CLOSED', 'ECONNRESET']).toContain(await rejectionOf('IP:127.0.0.1'));
    expect(await rejectionOf('DNS:localhost')).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
  });

  it.skipIf(skipsTls)(
    'rejects an untrusted certificate as unavailable when verification is required',
    async () => {
      const sql = open(`${db.urlFor('svc_engine')}?sslmode=verify-full`);
      const untrusted = { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' };
      const error = await outcomeOf(sql`select 1`);
      expect(error).toMatchObject(untrusted);
      expect(isUnavailable(error)).toBe(true);
      await expect(inTransaction(sql)).rejects.toMatchObject(untrusted);
    },
  );
});

describe('array parameters', () => {
  const UUID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

  it.each<[string, unknown[]]>([
    ['text[]', ['', 'a', 'a b', '"', '\\', '{,}', "'", 'null', 'NULL', null, '\n', '愛', '\\"{']],
    ['name[]', ['svc_engine', null]],
    ['uuid[]', [UUID, null]],
    ['smallint[]', [-1, 0, 32_767, null]],
    ['integer[]', [-1, 0, 2 ** 31 - 1, null]],
    ['bigint[]', [-1, 0, 2 ** 53 - 1, null]],
    ['text[]', []],
  ])('survive a round trip as %s', async (type, values) => {
    const sql = open(db.url);
    const [row] = await sql`select ${values as string[]}::${sql.unsafe(type)} as back,
      cardinality(${values as string[]}::${sql.unsafe(type)}) as n`;
    expect(row).toEqual({ back: values, n: values.length });
  });

  it('are rejected when a number exceeds the safe integer range or an element is undefined', async () => {
    const sql = open(db.url);
    await expect(sql`select array[9007199254740993]::bigint[]`).rejects.toThrow(RangeError);
    const values = ['a', undefined] as string[];
    await expect(sql`select ${values}::text[]`).rejects.toThrow(TypeError);
  });

  it('have a parser for the type of every array column in the schema svc', async () => {
    const columns = await db.sql<{ type: number; name: string }[]>`
      select distinct a.atttypid::int as type, format_type(a.atttypid, null) as name
      from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
      where c.relnamespace = 'svc'::regnamespace and c.relkind in ('r', 'p') and t.typcategory = 'A'`;
    expect(columns.length).toBeGreaterThan(0);
    const { parsers } = open(db.url).options;
    expect(columns.filter(({ type }) => parsers[type] === undefined)).toEqual([]);
  });
});

it('notifications > arrive again after their connection was lost, and end with the pool', async () => {
  const [proxy, url] = await openProxy(db.urlFor('svc_engine'), 'postgres');
  const sql = open(url, { application: 'listener' });
  const heard: string[] = [];
  sql.onNotification('svc_test', (payload) => void heard.push(payload));
  const notifyUntilHeard = (payload: string): Promise<void> =>
    expect
      .poll(
        async () => {
          await db.sql`select pg_notify('svc_test', ${payload})`;
          return heard.includes(payload);
        },
        { timeout: 8_000 },
      )
      .toBe(true);
  await notifyUntilHeard('first');
  void proxy.set(ANY_STATEMENT, Infinity);
  proxy.breakAll('reset');
  await sleep(1_500);
  proxy.clear();
  await notifyUntilHeard('second');
  await sql.end({ timeout: 1 });
  const listening = () => db.sql`select from pg_stat_activity where application_name = 'listener'`;
  await expect.poll(async () => (await listening()).length).toBe(0);
});

it('notifications > arrive over a new connection when the old one no longer answers', async () => {
  let isFirst = true;
  const [proxy, url] = await openProxy(db.urlFor('svc_engine'), 'other', (bytes) => {
    if (isFirst && bytes.includes('listen')) {
      isFirst = false;
      proxy.stall(true);
    }
  });
  const sql = open(url, { listenProbeMs: 500 });
  let connections = 0;
  sql.onNotification(
    'svc_test',
    () => undefined,
    () => void (connections += 1),
  );
  await expect.poll(() => isFirst).toBe(false);
  await sleep(800);
  proxy.stall(false);
  await expect.poll(() => connections, { timeout: 8_000 }).toBe(1);
  await sleep(1_200);
  expect(connections).toBe(1);
  proxy.stall(true);
  await sleep(1_200);
  proxy.stall(false);
  await expect.poll(() => connections, { timeout: 8_000 }).toBe(2);
});

it('connections > read and write the same values whatever the settings of the database', async () => {
  await db.sql.unsafe(
    Object.entries({
      datestyle: 'SQL, DMY',
      bytea_output: 'escape',
      standard_conforming_strings: 'off',
      array_nulls: 'off',
      default_transaction_isolation: 'repeatable read',
    })
      .map(([name, value]) => `alter database ${db.name} set ${name} = '${value}';`)
      .join(''),
  );
  const sql = open(db.urlFor('svc_engine'));
  const [row] = await sql<object[]>`
    select timestamptz '2026-02-01T00:00:00Z' as at, '\\x00ff'::bytea as bytes,
      cardinality(array_remove(${[null, 'a']}::text[], null)) as texts,
      current_setting('transaction_isolation') as isolation`;
  const bytes = Buffer.from([0, 255]);
  expect(row).toEqual({ at: new Date('2026-02-01'), bytes, texts: 1, isolation: 'read committed' });
});
