import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { logger } from '#runtime/process/log';
import { adminWith } from '../fixtures/admin.js';
import { executeBody, headersFor, issueKey } from '../fixtures/engine.js';
import { startProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis } from '../fixtures/redis.js';
import { testFolder } from '../fixtures/test-folder.js';
import { programsOn, testRegistry, testSnapshot } from './world.js';

const PAYLOAD = 'payload-to-hide';
const PASSWORD = 'hush-hush-password';
const KEY_FILE = 'key-file-content-to-hide';
const SHARE = 'share_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';

const { db, registry } = await testRegistry();
const home = await testFolder();
const { start, activate } = programsOn(db, home);
const key = await issueKey(registry);
const snapshot = await testSnapshot();

/** Checks that no line contains a secret. */
function expectClean(lines: readonly string[], key = KEY_FILE): void {
  for (const secret of [PAYLOAD, PASSWORD, KEY_FILE, SHARE.slice(6), key.slice(20)]) {
    expect(lines.join('\n')).not.toContain(secret);
  }
}

it('engine and worker logs > contain no request content, keys or tokens at any log level', async () => {
  await activate(registry);
  const engine = await start('engine', { LOG_LEVEL: 'trace' });
  const worker = await start('worker', { LOG_LEVEL: 'trace' });
  const send = async (body: string, headers: Record<string, string> = headersFor(key)) => {
    const url = `${engine.url}/v1/intents/execute?q=${PAYLOAD}`;
    const reply = await fetch(url, { method: 'POST', headers, body });
    await reply.arrayBuffer();
    return reply.status;
  };
  const body = (fields: object) => JSON.stringify(executeBody({ intent_id: PAYLOAD, ...fields }));
  const good = body({ action: 'BOOK_RESERVATION' });
  const statuses = [
    await send(good, { ...headersFor(key), 'X-Request-Id': `${PAYLOAD} <` }),
    await send(body({ action: 'DELETE_AUDIT_LOG' })),
    await send(body({ action: `NO_TOKEN ${PAYLOAD}` })),
    await send(`{"${PAYLOAD}":1}`),
    await send(`{"x":"${PAYLOAD}`),
    await send(good.replace(/.$/, `,"${PAYLOAD}":1}`)),
    await send(good, headersFor(`${key}x`)),
  ];
  expect(statuses).toEqual([200, 403, 400, 400, 400, 400, 401]);
  await fetch(`${engine.url}/v1/share-tokens/${SHARE}`, { headers: headersFor(key) });
  expect([await engine.stop(), await worker.stop()]).toEqual([0, 0]);
  expect(worker.stderr.join('\n')).toContain('"msg":"admissions committed"');
  expect(engine.stderr.filter((line) => line.includes('"msg":"request"'))).toHaveLength(8);
  expectClean([...engine.stderr, ...worker.stderr], key);
});

it('public API logs > contain no identifiers or tokens of lookups', async () => {
  const version = expect.stringMatching(/^\d+\.\d+/) as string;
  const instance = expect.stringMatching(/^[^:]+:\d+$/) as string;
  const facade = await startProgram('facade', { ...snapshot.env, LOG_LEVEL: 'trace' });
  const paths = [
    `/api/public/verify/share/${SHARE}`,
    `/api/public/verify?identifier=${PAYLOAD}`,
    `/api/public/verify/proof/${PAYLOAD}`,
    `/%ff${PAYLOAD}`,
    `/${PAYLOAD}`,
  ];
  for (const path of paths) {
    const reply = await fetch(facade.url + path, { headers: { 'X-Request-Id': `${PAYLOAD} <` } });
    await reply.arrayBuffer();
  }
  await fetch(`${facade.url}/api/public/verify`, { method: 'POST', body: `{"${PAYLOAD}` });
  // The public API logs one lookup in 1,024.
  for (let request = paths.length + 1; request < 1_024; request += 1) {
    const path = `/api/public/verify/share/${SHARE}?q=${PAYLOAD}`;
    const headers = { 'X-Request-Id': `lookup-${request + 1}` };
    await (await fetch(facade.url + path, { headers })).arrayBuffer();
  }
  expect(await facade.stop()).toBe(0);
  expectClean(facade.stderr);
  const lines = facade.stderr.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(lines.filter(({ msg }) => msg === 'request')).toMatchObject([
    {
      request_id: 'lookup-1024',
      method: 'GET',
      route: '/api/public/verify/share/{share_token}',
      status: 200,
      ms: expect.any(Number) as number,
    },
  ]);
  const messages = lines.map(({ msg }) => msg);
  expect(messages).toEqual(expect.arrayContaining(['started', 'listening', 'stopping', 'stopped']));
  for (const line of lines) {
    expect(line).toMatchObject({ program: 'facade', version, instance });
  }
});

it.skipIf(skipsRedis)(
  `engine and worker logs > contain no password that Redis rejected${withoutRedis}`,
  async () => {
    const redis = await startRedis();
    const url = new URL(redis.url);
    url.username = 'svc';
    url.password = PASSWORD;
    for (const name of ['engine', 'worker']) {
      const program = await start(
        name,
        { REDIS_URL: url.href, SHUTDOWN_TIMEOUT: '1s', LOG_LEVEL: 'trace' },
        { untilSaid: /WRONGPASS/ },
      );
      await program.stop();
      expect(program.stderr.join('\n')).toContain('WRONGPASS');
      expectClean(program.stderr);
    }
    await redis.close();
  },
  60_000,
);

it.for(['engine', 'worker', 'verifier', 'publisher'])(
  '%s logs > contain neither a rejected database password nor the content of an invalid key file',
  async (name) => {
    const file = join(home, `bad-${name}.pem`);
    await writeFile(file, `-----BEGIN PRIVATE KEY-----\n${KEY_FILE}\n`, { mode: 0o600 });
    const url = new URL(db.urlFor(`svc_${name}`));
    url.password = PASSWORD;
    const program = await start(name, {
      DATABASE_URL: url.href,
      AEP_KEY_FILE: file,
      LOG_KEY_FILE: file,
      VERIFIER_KEY_FILE: file,
      LOG_LEVEL: 'trace',
    });
    expect(await program.stop()).toBe(1);
    expectClean(program.stderr);
  },
);

it('admin output > contains no credentials', async () => {
  for (const LOG_LEVEL of ['info', 'trace']) {
    const DATABASE_URL = `postgres://svc_admin:${PASSWORD}@127.0.0.1:1/svc`;
    const { out, err } = await adminWith({ DATABASE_URL, LOG_LEVEL })('tenant', 'list');
    expect(err).not.toBe('');
    expectClean([out, err]);
  }
});

it('log of a database error > omits the row that PostgreSQL quotes in the error', async () => {
  const logged: string[] = [];
  await db.sql.unsafe(`create table marked (payload text check (payload = ''))`);
  const error: unknown = await db.sql`insert into marked values (${PAYLOAD})`.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect((error as { detail?: string }).detail).toMatch(/^Failing row contains/);
  const log = logger('test', 'trace');
  const symbols = Object.getOwnPropertySymbols(log);
  const stream = symbols.find((one) => String(one) === 'Symbol(pino.stream)')!;
  (log as unknown as Record<symbol, unknown>)[stream] = {
    write: (line: string) => void logged.push(line),
  };
  log.error({ err: new AggregateError([error], 'several') }, 'failed');
  log.error({ err: error }, 'failed');
  expect(logged).toHaveLength(2);
  expect(logged.join('')).toContain('marked');
  expect(logged.join('')).not.toContain('Failing row');
  expectClean(logged);
});
