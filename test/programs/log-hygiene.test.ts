import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { ensureKeyActive } from '#sql/lifecycle/entries';
import { adminWith } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { executeBody, headersFor, issueKey } from '../fixtures/engine.js';
import { startProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis } from '../fixtures/redis.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { TestSnapshot } from '../fixtures/snapshot.js';

let home: string;
let db: TestDatabase;
let registry: TestRegistry;
let key: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-hygiene-'));
  db = await freshDatabase();
  registry = await openRegistry(db);
  key = await issueKey(registry);
});
afterAll(async () => {
  await db.drop();
  await rm(home, { recursive: true, force: true });
});

const PAYLOAD = 'payload-nobody-may-read';
const PASSWORD = 'hush-hush-password';
const KEY_FILE = 'key-file-content-to-hide';
const SHARE = 'share_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';

/** What must be in no line; a password also as an URL has it. */
function expectClean(text: string): void {
  const secrets = [PAYLOAD, PASSWORD, KEY_FILE, SHARE.slice(6), key.slice(20)];
  for (const secret of secrets) expect(text).not.toContain(secret);
}

it('engine logs > contain no bodies, keys, tokens or passwords at any level', async () => {
  const engine = await startProgram('engine', {
    DATABASE_URL: db.urlFor('svc_engine'),
    // A Redis that is not there, with a password that is somebody's.
    REDIS_URL: `redis://svc:${PASSWORD}@127.0.0.1:1`,
    ENGINE_PORT: '0',
    LOG_LEVEL: 'trace',
  });
  const send = (body: string, headers = headersFor(key)) =>
    fetch(`${engine.url}/v1/intents/execute?q=${PAYLOAD}`, { method: 'POST', headers, body });
  const good = JSON.stringify(executeBody({ intent_id: PAYLOAD }));
  // Nobody settles this one: it is answered when the engine is told to stop.
  const waiting = send(good, { ...headersFor(key), 'X-Request-Id': `${PAYLOAD} <` });
  await Promise.all([
    send(`{"${PAYLOAD}":1}`),
    send(`{"x":"${PAYLOAD}`),
    send(good.replace(/.$/, `,"${PAYLOAD}":1}`)),
    send(good, headersFor(`${key}x`)),
    fetch(`${engine.url}/v1/share-tokens/${SHARE}`, { headers: headersFor(key) }),
  ]);
  await expect.poll(() => db.sql`select from svc.intake_pending`).toHaveLength(1);
  expect(await engine.stop()).toBe(0);
  expect((await waiting).status).toBe(202);
  const lines = engine.stderr.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(lines.filter(({ msg }) => msg === 'request').length).toBe(6);
  expectClean(engine.stderr.join('\n'));
}, 40_000);

it('engine and worker logs > contain no admitted, denied or rejected content at trace', async () => {
  const aep = join(home, 'aep-active.pem');
  const { publicKey } = createSigningKey(aep);
  await ensureKeyActive(registry.admin, nativeSha256, {
    keyId: jwkThumbprint(nativeSha256, publicKey),
    publicKey: toBase64Url(publicKey),
  });
  const engine = await startProgram('engine', {
    DATABASE_URL: db.urlFor('svc_engine'),
    ENGINE_PORT: '0',
    LOG_LEVEL: 'trace',
  });
  const worker = await startProgram('worker', {
    DATABASE_URL: db.urlFor('svc_worker'),
    AEP_KEY_FILE: aep,
    LOG_LEVEL: 'trace',
  });
  const send = async (fields: object) => {
    const reply = await fetch(`${engine.url}/v1/intents/execute`, {
      method: 'POST',
      headers: headersFor(key),
      body: JSON.stringify(executeBody({ intent_id: PAYLOAD, ...fields })),
    });
    await reply.arrayBuffer();
    return reply.status;
  };
  expect(await send({ action: 'BOOK_RESERVATION' })).toBe(200);
  expect(await send({ action: 'DELETE_AUDIT_LOG' })).toBe(403);
  expect(await send({ action: `NO_TOKEN ${PAYLOAD}` })).toBe(400);
  expect([await engine.stop(), await worker.stop()]).toEqual([0, 0]);
  expect(worker.stderr.join('\n')).toContain('"msg":"admissions committed"');
  expectClean([...engine.stderr, ...worker.stderr].join('\n'));
}, 40_000);

it('public API logs > contain no identifiers or tokens of lookups', async () => {
  const snapshot = new TestSnapshot();
  snapshot.registry.addProofs(3);
  snapshot.registry.verify();
  snapshot.clock.at = Date.now();
  await snapshot.publisher().runCycle();
  const facade = await startProgram('facade', {
    SNAPSHOT_DIR: snapshot.directory,
    LOG_VKEY: snapshot.logVkey,
    SNAPSHOT_VKEY: snapshot.snapshotVkey,
    PUBLIC_PORT: '0',
    LOG_LEVEL: 'trace',
  });
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
  expect(await facade.stop()).toBe(0);
  await snapshot.close();
  expect(facade.stderr.length).toBeGreaterThan(0);
  expectClean(facade.stderr.join('\n'));
}, 40_000);

it.skipIf(skipsRedis)(
  `engine and worker logs > contain no password that Redis rejects${withoutRedis}`,
  async () => {
    const redis = await startRedis();
    const url = new URL(redis.url);
    url.username = 'svc';
    url.password = PASSWORD;
    for (const name of ['engine', 'worker']) {
      const program = await startProgram(
        name,
        {
          DATABASE_URL: db.urlFor(`svc_${name}`),
          REDIS_URL: url.href,
          SHUTDOWN_TIMEOUT: '1s',
          ENGINE_PORT: '0',
          AEP_KEY_FILE: join(home, 'aep-active.pem'),
          LOG_LEVEL: 'trace',
        },
        { untilSaid: /WRONGPASS/ },
      );
      await program.stop();
      expect(program.stderr.join('\n')).toContain('WRONGPASS');
      expectClean(program.stderr.join('\n'));
    }
    await redis.close();
  },
  60_000,
);

it.each(['engine', 'worker', 'verifier', 'publisher'])(
  '%s logs > contain no credentials of a database that rejects them',
  async (name) => {
    const file = join(home, `${name}.pem`);
    await writeFile(file, `-----BEGIN PRIVATE KEY-----\n${KEY_FILE}\n`, { mode: 0o600 });
    const url = new URL(db.urlFor(`svc_${name}`));
    url.password = PASSWORD;
    for (const DATABASE_URL of [url.href, `postgres://svc:${PASSWORD}@127.0.0.1:1/svc`]) {
      const program = await startProgram(name, {
        DATABASE_URL,
        ENGINE_PORT: '0',
        AEP_KEY_FILE: file,
        LOG_KEY_FILE: file,
        SNAPSHOT_KEY_FILE: file,
        LOG_ORIGIN: 'hygiene.example/log',
        SNAPSHOT_DIR: join(home, 'public'),
        LOG_LEVEL: 'trace',
      });
      await program.stop();
      expect(program.stderr.length).toBeGreaterThan(0);
      expectClean(program.stderr.join('\n'));
    }
  },
  40_000,
);

it('admin output > contains no credentials', async () => {
  for (const LOG_LEVEL of ['info', 'trace']) {
    const DATABASE_URL = `postgres://svc_admin:${PASSWORD}@127.0.0.1:1/svc`;
    const { out, err } = await adminWith({ DATABASE_URL, LOG_LEVEL })('tenant', 'list');
    expect(err).not.toBe('');
    expectClean(out + err);
  }
});

it('the log of a database error > omits the row that the error quotes', async () => {
  const said: string[] = [];
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
    write: (line: string) => void said.push(line),
  };
  log.error({ err: new AggregateError([error], 'several') }, 'failed');
  log.error({ err: error }, 'failed');
  expect(said).toHaveLength(2);
  expect(said.join('')).toContain('marked');
  expect(said.join('')).not.toContain('Failing row');
  expectClean(said.join(''));
});
