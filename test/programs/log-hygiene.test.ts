import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { ensureKeyActive } from '#sql/lifecycle/entries';
import { adminWith } from '../fixtures/admin.js';
import { executeBody, headersFor, issueKey } from '../fixtures/engine.js';
import { startProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis } from '../fixtures/redis.js';
import { TestSnapshot } from '../fixtures/snapshot.js';
import { it as base } from './fixture.js';

const PAYLOAD = 'payload-to-hide';
const PASSWORD = 'hush-hush-password';
const KEY_FILE = 'key-file-content-to-hide';
const SHARE = 'share_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';

const it = base.extend<{ $file: { key: string } }>({
  key: [({ registry }, use) => issueKey(registry).then(use), { scope: 'file' }],
});

/** Checks that no line contains a secret. */
function expectClean(lines: readonly string[], key = KEY_FILE): void {
  for (const secret of [PAYLOAD, PASSWORD, KEY_FILE, SHARE.slice(6), key.slice(20)]) {
    expect(lines.join('\n')).not.toContain(secret);
  }
}

it('engine logs > contain no bodies, keys, tokens or passwords at any level', async ({
  db,
  key,
}) => {
  const engine = await startProgram('engine', {
    DATABASE_URL: db.urlFor('svc_engine'),
    // An unreachable Redis, with a password.
    REDIS_URL: `redis://svc:${PASSWORD}@127.0.0.1:1`,
    ENGINE_PORT: '0',
    LOG_LEVEL: 'trace',
  });
  const send = (body: string, headers = headersFor(key)) =>
    fetch(`${engine.url}/v1/intents/execute?q=${PAYLOAD}`, { method: 'POST', headers, body });
  const good = JSON.stringify(executeBody({ intent_id: PAYLOAD }));
  // Without a worker, this one is answered when the engine stops.
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
  expect(engine.stderr.filter((line) => line.includes('"msg":"request"'))).toHaveLength(6);
  expectClean(engine.stderr, key);
}, 40_000);

it('engine and worker logs > contain no admitted, denied or rejected content at trace', async ({
  db,
  home,
  key,
  registry,
}) => {
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
  expectClean([...engine.stderr, ...worker.stderr], key);
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
  expectClean(facade.stderr);
}, 40_000);

it.skipIf(skipsRedis)(
  `engine and worker logs > contain no password that Redis rejects${withoutRedis}`,
  async ({ db, home }) => {
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
      expectClean(program.stderr);
    }
    await redis.close();
  },
  60_000,
);

it.for(['engine', 'worker', 'verifier', 'publisher'])(
  '%s logs > contain no credentials of a database that rejects them',
  async (name, { db, home }) => {
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
      expectClean(program.stderr);
    }
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

it('the log of a database error > omits the row that the error quotes', async ({ db }) => {
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
