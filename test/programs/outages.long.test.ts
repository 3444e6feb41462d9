import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { formatVkey } from '#protocol/note';
import { createSigningKey, nativeSha256, type SigningKey } from '#runtime/crypto/node';
import { transaction } from '#sql/db/transaction';
import { appendKeyChange } from '#sql/lifecycle/signing-keys';
import { adminWith, type AdminLine } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { parseExposition, valueOf } from '../fixtures/exposition.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';

/** Checks what the programs and `admin status` report while one dependency after another fails. */

const LOG_ORIGIN = 'outage.example/log';
const WAIT = { timeout: 60_000, interval: 200 };

let db: TestDatabase;
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

const readiness = async (name: string): Promise<number> => (await ask(name, '/readyz')).status;

async function attention(): Promise<string[]> {
  const { json } = await admin('status', '--json');
  return (json as { attention: { what: string }[] }).attention.map(({ what }) => what);
}

const allWell = () => expect.poll(attention, WAIT).toEqual([]);

beforeAll(async () => {
  db = await freshDatabase();
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
  const [facade] = await Promise.all([
    start('facade', {
      PUBLIC_PORT: '0',
      SNAPSHOT_DIR: join(home, 'public'),
      ...pinning(formatVkey(nativeSha256, LOG_ORIGIN, logKey.publicKey)),
    }),
    start('engine', { ENGINE_PORT: '0', PUBLIC_URL: 'http://127.0.0.1:1' }),
    start('worker', { AEP_KEY_FILE: join(home, 'aep.pem') }),
    start('verifier', { VERIFIER_KEY_FILE: join(home, 'verifier.pem'), LOG_ORIGIN }),
    start('publisher', publisherEnv()),
  ]);
  await start('publisher', publisherEnv(), 'standby');
  admin = adminWith({ DATABASE_URL: db.urlFor('svc_admin'), PUBLIC_URL: facade.url });
}, 120_000);
afterAll(async () => {
  await Promise.all(Object.values(programs).map((program) => program.stop()));
  await proxy.close();
  await db.drop();
}, 60_000);

describe('during an outage', () => {
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
});
