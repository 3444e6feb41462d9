import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { formatCheckpoint } from '#protocol/checkpoint';
import { jwkThumbprint } from '#protocol/keys';
import { formatVkey, keyId, signNote } from '#protocol/note';
import { createSigningKey, nativeSha256, type SigningKey } from '#runtime/crypto/node';
import { transaction } from '#sql/db/transaction';
import { appendKeyChange } from '#sql/lifecycle/entries';
import { adminWith, type AdminLine } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { batchCall, executeBodies } from '../fixtures/batches.js';
import { executeBody, headersFor, issueKey, send } from '../fixtures/engine.js';
import { parseExposition, valueOf } from '../fixtures/exposition.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';

/** Checks what the programs and `admin status` report while one dependency after another fails. */

const LOG_ORIGIN = 'outage.example/log';
const WAIT = { timeout: 60_000, interval: 200 };

let db: TestDatabase;
let redis: TestRedis;
let registry: TestRegistry;
let admin: AdminLine;
/** A proxy between the database and all programs except the engine. */
let proxy: TcpProxy;
let logKey: SigningKey;
let aepKey: SigningKey;
const home = await testFolder();
const programs: Record<string, RunningProgram & { opsUrl: string }> = {};

async function start(name: string, env: Record<string, string> = {}, as = name) {
  const url = db.urlFor(`svc_${name}`);
  const program = await startProgram(name, {
    PATH: process.env['PATH'] ?? '',
    OPS_PORT: '0',
    ...(name === 'facade' ? {} : { DATABASE_URL: name === 'engine' ? url : proxy.urlFor(url) }),
    ...env,
  });
  const opsUrl = /"ops_url":"([^"]+)"/.exec(program.stderr.join())?.[1] ?? '';
  return (programs[as] = { ...program, opsUrl });
}

const publisherEnv = () => ({
  LOG_KEY_FILE: join(home, 'log.pem'),
  LOG_ORIGIN,
  SNAPSHOT_DIR: join(home, 'public'),
});

async function ask(name: string, path: '/healthz' | '/readyz' | '/metrics') {
  const response = await fetch(programs[name]!.opsUrl + path);
  return { status: response.status, text: await response.text() };
}

const metricOf = async (name: string, metric: string): Promise<number | null> =>
  valueOf(parseExposition((await ask(name, '/metrics')).text), metric);

const execute = (key: string) =>
  send(programs['engine']!.url, { headers: headersFor(key), body: JSON.stringify(executeBody()) });

const readiness = async (name: string): Promise<number> => (await ask(name, '/readyz')).status;

async function attention(): Promise<string[]> {
  const { json } = await admin('status', '--json');
  return (json as { attention: { what: string }[] }).attention.map(({ what }) => what);
}

const allWell = () => expect.poll(attention, WAIT).toEqual([]);

beforeAll(async () => {
  if (skipsRedis) return;
  [db, redis] = await Promise.all([freshDatabase(), startRedis()]);
  proxy = await TcpProxy.open(db.url, 'other');
  logKey = createSigningKey(join(home, 'log.pem'));
  aepKey = createSigningKey(join(home, 'aep.pem'));
  registry = await openRegistry(db);
  const verifierKey = createSigningKey(join(home, 'verifier.pem')).publicKey;
  await appendKeyChange(registry.admin, nativeSha256, {
    use: 'verifier',
    keyId: jwkThumbprint(nativeSha256, verifierKey),
    publicKey: toBase64Url(verifierKey),
    change: 'activate',
  });
  const queue = { REDIS_URL: redis.url };
  const [facade] = await Promise.all([
    start('facade', {
      PUBLIC_PORT: '0',
      SNAPSHOT_DIR: join(home, 'public'),
      ...pinning(formatVkey(nativeSha256, LOG_ORIGIN, logKey.publicKey)),
    }),
    start('engine', { ...queue, ENGINE_PORT: '0', PUBLIC_URL: 'http://127.0.0.1:1' }),
    start('worker', { ...queue, AEP_KEY_FILE: join(home, 'aep.pem') }),
    start('verifier', { VERIFIER_KEY_FILE: join(home, 'verifier.pem'), LOG_ORIGIN }),
    start('publisher', publisherEnv()),
  ]);
  await start('publisher', publisherEnv(), 'standby');
  admin = adminWith({ DATABASE_URL: db.urlFor('svc_admin'), PUBLIC_URL: facade.url });
}, 120_000);
afterAll(async () => {
  if (skipsRedis) return;
  await Promise.all(Object.values(programs).map((program) => program.stop()));
  await proxy.close();
  await redis.close();
  await db.drop();
}, 60_000);

describe.skipIf(skipsRedis)(`during an outage${withoutRedis}`, () => {
  it('a worker whose key is not active is not ready, and admin status names the key', async () => {
    const aepKeyId = jwkThumbprint(nativeSha256, aepKey.publicKey);
    await expect.poll(() => readiness('worker'), WAIT).toBe(503);
    expect((await ask('worker', '/readyz')).text).toContain('"signing_key":"unknown"');
    const what = `a worker's key is not active, so the worker commits no admissions: ${aepKeyId}`;
    await expect.poll(attention, WAIT).toContain(what);
    await transaction(db.as('svc_admin'), (tx) =>
      appendKeyChange(tx, nativeSha256, {
        keyId: aepKeyId,
        publicKey: toBase64Url(aepKey.publicKey),
        change: 'activate',
      }),
    );
    await allWell();
    expect(await admin('status')).toMatchObject({ code: 0, json: { status: 'well' } });
    for (const name of ['engine', 'worker', 'verifier', 'publisher', 'standby', 'facade']) {
      await expect.poll(() => readiness(name), WAIT).toBe(200);
    }
    expect((await ask('publisher', '/readyz')).text).toContain('"role":"leader"');
    expect((await ask('standby', '/readyz')).text).toContain('"role":"standby"');
  }, 150_000);

  it('programs report a hanging database at once, and export no outdated metrics', async () => {
    const gauges = [
      ['worker', 'svc_pending_admissions'],
      ['verifier', 'svc_verifier_lag_leaves'],
      ['publisher', 'svc_clock_skew_seconds'],
    ] as const;
    for (const [name, metric] of gauges) {
      await expect.poll(() => metricOf(name, metric), WAIT).not.toBeNull();
    }
    proxy.stall(true);
    const report = async ([name, metric]: (typeof gauges)[number]): Promise<void> => {
      expect((await ask(name, '/healthz')).status).toBe(200);
      const began = performance.now();
      expect((await ask(name, '/metrics')).status).toBe(200);
      await ask(name, '/readyz');
      expect(performance.now() - began).toBeLessThan(16_000);
      await expect.poll(() => readiness(name), WAIT).toBe(503);
      await expect.poll(() => metricOf(name, metric), WAIT).toBeNull();
      expect(await metricOf(name, 'svc_metrics_collection_errors_total')).toBeGreaterThan(0);
    };
    // Checks all gauges at once, because a program exits when a statement hangs for 40 s.
    await Promise.all(gauges.map(report));
    const { text } = await ask('worker', '/readyz');
    expect(JSON.parse(text)).toMatchObject({ dependencies: { database: 'down' } });
    expect(text).not.toContain('postgres:');
    proxy.breakAll('end');
    proxy.stall(false);
    for (const name of ['worker', 'verifier', 'publisher', 'standby']) {
      await expect.poll(() => readiness(name), WAIT).toBe(200);
    }
    await expect.poll(() => metricOf('worker', 'svc_pending_admissions'), WAIT).not.toBeNull();
  }, 120_000);

  it('admin status names the queue and the programs that cannot reach it', async () => {
    await redis.kill();
    await expect
      .poll(attention, WAIT)
      .toContain('queue down, as reported by engine (1 of 1), worker (1 of 1)');
    expect((await admin('status')).code).toBe(1);
    // Metrics of the queue are absent, and all other metrics are present.
    await expect.poll(() => metricOf('worker', 'svc_queue_jobs'), WAIT).toBeNull();
    expect(await metricOf('worker', 'svc_pending_oldest_seconds')).not.toBeNull();
    // Workers find admissions and batches in the registry.
    const { url } = programs['engine']!;
    const key = await issueKey(registry);
    expect((await execute(key)).status).toBe(200);
    const { location } = (await send(url, batchCall(key, executeBodies(3)))).headers;
    const batch = { method: 'GET', path: location!, headers: headersFor(key) };
    await expect
      .poll(async () => (await send(url, batch)).json, WAIT)
      .toMatchObject({ counts: { admitted: 3 } });
    expect(await metricOf('worker', 'svc_queue_up')).toBe(0);
    await redis.start();
    await allWell();
  }, 150_000);

  it('admin status names the loss that the publisher reports, and log end then ends the log', async () => {
    const end = ['log', 'end', LOG_ORIGIN, '--reason', 'a test', '--confirm', LOG_ORIGIN];
    await Promise.all([programs['publisher']!.stop(), programs['standby']!.stop()]);
    expect((await admin(...end)).err).toContain('no publisher has reported a loss');
    const signer = {
      name: LOG_ORIGIN,
      keyHash: keyId(nativeSha256, LOG_ORIGIN, logKey.publicKey),
      sign: logKey.sign,
    };
    const head = { origin: LOG_ORIGIN, size: 1_000, root: new Uint8Array(32) };
    const TRUSTED_CHECKPOINT = join(home, 'kept');
    writeFileSync(TRUSTED_CHECKPOINT, signNote(formatCheckpoint(head), signer));
    const refusing = await start('publisher', { ...publisherEnv(), TRUSTED_CHECKPOINT });
    expect(await refusing.exited).toBe(1);
    expect(await attention()).toContain('the publisher refuses to publish: database_behind');
    expect(await admin(...end)).toMatchObject({ code: 0, json: { ended: true } });
  }, 90_000);
});
