import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatCheckpoint } from '#protocol/checkpoint';
import { formatVkey, keyId, signNote } from '#protocol/note';
import { createSigningKey, nativeSha256, type SigningKey } from '#runtime/crypto/node';
import { adminWith, done, type AdminLine } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { openRegistry } from '../fixtures/registry.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';

/** `admin status` beside the separate programs, while one after the other is out of order. */

const LOG_ORIGIN = 'outage.example/log';
const WAIT = { timeout: 60_000, interval: 200 };

let db: TestDatabase;
let redis: TestRedis;
let home: string;
let admin: AdminLine;
let logKey: SigningKey;
const programs: Record<string, RunningProgram> = {};

const start = async (name: string, env: Record<string, string> = {}): Promise<RunningProgram> => {
  const role = { DATABASE_URL: db.urlFor(`svc_${name}`) };
  programs[name] = await startProgram(name, {
    PATH: process.env['PATH'] ?? '',
    ...(name === 'facade' ? {} : role),
    ...env,
  });
  return programs[name];
};

const publisherEnv = () => ({
  LOG_KEY_FILE: join(home, 'log.pem'),
  SNAPSHOT_KEY_FILE: join(home, 'snapshot.pem'),
  LOG_ORIGIN,
  SNAPSHOT_DIR: join(home, 'public'),
});

const attention = async (): Promise<string[]> => {
  const { json } = await admin('status', '--json');
  return (json as { attention: { what: string }[] }).attention.map(({ what }) => what);
};

const allWell = () => expect.poll(attention, WAIT).toEqual([]);

beforeAll(async () => {
  if (skipsRedis) return;
  [db, redis] = await Promise.all([freshDatabase(), startRedis()]);
  home = mkdtempSync(join(tmpdir(), 'svc-outage-'));
  logKey = createSigningKey(join(home, 'log.pem'));
  const snapshotKey = createSigningKey(join(home, 'snapshot.pem'));
  createSigningKey(join(home, 'aep.pem'));
  await openRegistry(db);
  await done(
    adminWith({ DATABASE_URL: db.urlFor('svc_admin') })(
      'aep-key',
      'activate',
      join(home, 'aep.pem'),
    ),
  );
  const queue = { REDIS_URL: redis.url };
  const [facade] = await Promise.all([
    start('facade', {
      PUBLIC_PORT: '0',
      SNAPSHOT_DIR: join(home, 'public'),
      LOG_VKEY: formatVkey(nativeSha256, LOG_ORIGIN, logKey.publicKey),
      SNAPSHOT_VKEY: formatVkey(nativeSha256, 'outage.example/snapshot', snapshotKey.publicKey),
    }),
    start('engine', { ...queue, ENGINE_PORT: '0', PUBLIC_URL: 'http://127.0.0.1:1' }),
    start('worker', { ...queue, AEP_KEY_FILE: join(home, 'aep.pem') }),
    start('verifier'),
    start('publisher', publisherEnv()),
  ]);
  admin = adminWith({ DATABASE_URL: db.urlFor('svc_admin'), PUBLIC_URL: facade.url });
}, 120_000);
afterAll(async () => {
  if (skipsRedis) return;
  await Promise.all(Object.values(programs).map((program) => program.stop()));
  await redis.close();
  await db.drop();
  rmSync(home, { recursive: true, force: true });
}, 60_000);

describe.skipIf(skipsRedis)(`admin status in an outage${withoutRedis}`, () => {
  it('exits with 0 while every program runs', async () => {
    await allWell();
    const { code, out } = await admin('status');
    expect(code).toBe(0);
    expect(out).toContain('"status": "well"');
  }, 90_000);

  it('names the queue and the programs that cannot reach it while Redis is down', async () => {
    await redis.kill();
    await expect
      .poll(attention, WAIT)
      .toContain('queue down, as reported by engine (1 of 1), worker (1 of 1)');
    expect((await admin('status')).code).toBe(1);
    await redis.start();
    await allWell();
  }, 150_000);

  it('names the publisher while it cannot write the snapshot directory', async () => {
    renameSync(join(home, 'public'), join(home, 'away'));
    writeFileSync(join(home, 'public'), '');
    await expect
      .poll(attention, WAIT)
      .toContain('ticks failing, as reported by publisher (1 of 1)');
    rmSync(join(home, 'public'));
    renameSync(join(home, 'away'), join(home, 'public'));
    await allWell();
  }, 150_000);

  it('names the engine, the public API and the verifier when they are stopped', async () => {
    const url = programs['facade']!.url;
    for (const name of ['engine', 'facade', 'verifier']) await programs[name]!.stop();
    const { code, json } = await admin('status');
    expect(code).toBe(1);
    const { attention: found } = json as { attention: { what: string }[] };
    expect(found.map(({ what }) => what)).toEqual(
      expect.arrayContaining([
        'no engine is connected',
        'no verifier is connected',
        `the public API is down at ${url}: ECONNREFUSED`,
      ]),
    );
  }, 60_000);

  it('names why a publisher refuses to publish, which log end requires', async () => {
    const end = ['log', 'end', LOG_ORIGIN, '--reason', 'a test', '--confirm', LOG_ORIGIN];
    await programs['publisher']!.stop();
    const healthy = await admin(...end);
    expect(healthy.code).toBe(1);
    expect(healthy.err).toContain('no publisher has reported a loss of published leaves');

    const signer = {
      name: LOG_ORIGIN,
      keyHash: keyId(nativeSha256, LOG_ORIGIN, logKey.publicKey),
      sign: logKey.sign,
    };
    const head = { origin: LOG_ORIGIN, size: 1_000, root: new Uint8Array(32) };
    writeFileSync(join(home, 'kept'), signNote(formatCheckpoint(head), signer));
    const refusing = await start('publisher', {
      ...publisherEnv(),
      TRUSTED_CHECKPOINT: join(home, 'kept'),
    });
    expect(await refusing.exited).toBe(1);
    expect(await attention()).toContain('the publisher refuses to publish: database_behind');

    expect(await admin(...end.slice(0, -2))).toMatchObject({ code: 2 });
    expect(await admin(...end)).toMatchObject({ code: 0, json: { ended: true } });
  }, 90_000);
});
