import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { appendKeyChange } from '#sql/lifecycle/entries';
import { transaction } from '#sql/db/transaction';
import { adminOn } from '../fixtures/admin.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { parseExposition, valueOf } from '../fixtures/exposition.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { startTcpProxy, type TcpProxy } from '../fixtures/tcp-proxy.js';

let db: TestDatabase;
let home: string;
/** Can hold back everything, as a dead switch does. */
let way: TcpProxy;
const programs: Record<string, RunningProgram> = {};
let aepKey: Uint8Array;
const opsUrls: Record<string, string> = {};

beforeAll(async () => {
  db = await freshDatabase();
  home = await mkdtemp(join(tmpdir(), 'svc-ops-'));
  way = await startTcpProxy(new URL(db.url));
  for (const name of ['log', 'snapshot']) createSigningKey(join(home, `${name}.pem`));
  aepKey = createSigningKey(join(home, 'aep.pem')).publicKey;
  const publisher = {
    LOG_KEY_FILE: join(home, 'log.pem'),
    SNAPSHOT_KEY_FILE: join(home, 'snapshot.pem'),
    LOG_ORIGIN: 'ops.example/log',
    SNAPSHOT_DIR: join(home, 'public'),
  };
  const started = [
    start('worker', 'worker', { AEP_KEY_FILE: join(home, 'aep.pem') }),
    start('verifier', 'verifier', {}),
    start('publisher', 'publisher', publisher),
  ];
  await Promise.all(started);
  await start('standby', 'publisher', publisher);
}, 60_000);

afterAll(async () => {
  for (const program of Object.values(programs)) program.kill();
  way.close();
  await db.drop();
  await rm(home, { recursive: true, force: true });
}, 60_000);

async function start(name: string, program: string, env: Record<string, string>): Promise<void> {
  const url = new URL(db.urlFor(`svc_${program}`));
  url.host = new URL(way.url).host;
  const running = await startProgram(program, {
    PATH: process.env['PATH'] ?? '',
    DATABASE_URL: url.toString(),
    OPS_PORT: '0',
    ...env,
  });
  programs[name] = running;
  opsUrls[name] = /"ops_url":"([^"]+)"/.exec(running.stderr.join())?.[1] ?? '';
}

async function ask(name: string, path: string) {
  const began = performance.now();
  const response = await fetch(opsUrls[name]! + path);
  const text = await response.text();
  return { status: response.status, text, ms: performance.now() - began };
}

async function until(name: string, path: string, holds: (text: string, status: number) => boolean) {
  for (const deadline = Date.now() + 25_000; ; await sleep(200)) {
    const { text, status } = await ask(name, path);
    if (holds(text, status)) return text;
    if (Date.now() > deadline) throw new Error(`${name} ${path}: ${status} ${text.slice(0, 400)}`);
  }
}

const is = (name: string, metric: string) => (text: string) =>
  valueOf(parseExposition(text), metric) !== null && name !== '';

describe('a worker whose key is not active', () => {
  const keyId = () => jwkThumbprint(nativeSha256, aepKey);
  const change = (to: 'activate' | 'retire', key: Uint8Array) =>
    transaction(db.as('svc_admin'), (tx) =>
      appendKeyChange(tx, nativeSha256, {
        keyId: jwkThumbprint(nativeSha256, key),
        publicKey: toBase64Url(key),
        change: to,
      }),
    );
  const attention = async (): Promise<string[]> => {
    const { json } = await adminOn(db)('status', '--json');
    return (json as { attention: { what: string }[] }).attention.map(({ what }) => what);
  };

  it('is not ready, and admin status names its key', async () => {
    await until('worker', '/readyz', (text, status) => {
      const says = JSON.parse(text) as { signing_key?: string; jobs?: string };
      return status === 503 && says.signing_key === 'unknown' && says.jobs === 'up';
    });
    const other = createSigningKey(join(home, 'other.pem')).publicKey;
    await change('activate', other);
    expect(await attention()).toContain(
      `a worker's key is not active, so it commits no admissions: ${keyId()}`,
    );
    await change('activate', aepKey);
    await until('worker', '/readyz', (text, status) => {
      return status === 200 && text.includes('"signing_key":"active"');
    });
    expect((await attention()).join()).not.toContain('is not active');
  });
});

describe('separate programs', () => {
  it('report ready, and which of two publishers leads', async () => {
    for (const name of ['worker', 'verifier', 'publisher', 'standby']) {
      await until(name, '/readyz', (_text, status) => status === 200);
    }
    expect(JSON.parse((await ask('publisher', '/readyz')).text)).toMatchObject({ role: 'leader' });
    expect(JSON.parse((await ask('standby', '/readyz')).text)).toMatchObject({ role: 'standby' });
    const leads = async (name: string) =>
      valueOf(parseExposition((await ask(name, '/metrics')).text), 'svc_publisher_is_leader');
    expect([await leads('publisher'), await leads('standby')]).toEqual([1, 0]);
  });

  it('report a hanging database at once, without stale readings', async () => {
    const gauges = {
      worker: 'svc_pending_admissions',
      verifier: 'svc_verifier_lag_leaves',
      publisher: 'svc_clock_skew_seconds',
    };
    for (const [name, metric] of Object.entries(gauges)) {
      await until(name, '/metrics', is(name, metric));
    }
    way.state.loses = 'all';
    for (const [name, metric] of Object.entries(gauges)) {
      expect((await ask(name, '/healthz')).status).toBe(200);
      const { status, ms } = await ask(name, '/metrics');
      expect(status).toBe(200);
      expect(ms).toBeLessThan(8_000);
      await until(name, '/readyz', (_text, ready) => ready === 503);
      expect((await ask(name, '/readyz')).ms).toBeLessThan(8_000);
      const text = await until(name, '/metrics', (now) => !is(name, metric)(now));
      expect(valueOf(parseExposition(text), 'svc_metrics_collection_errors_total')).toBeGreaterThan(
        0,
      );
    }
    const { text } = await ask('worker', '/readyz');
    expect(JSON.parse(text)).toMatchObject({ dependencies: { database: 'down' } });
    expect(text).not.toContain('postgres:');
    // What was held is lost: the connections are as good as dead.
    way.state.loses = 'nothing';
    way.cut();
    for (const name of ['worker', 'verifier', 'publisher', 'standby']) {
      await until(name, '/readyz', (_text, ready) => ready === 200);
    }
    await until('worker', '/metrics', is('worker', 'svc_pending_admissions'));
  }, 120_000);

  it('report a standby as leader when the leader is killed', async () => {
    const leads = async (name: string) =>
      valueOf(parseExposition((await ask(name, '/metrics')).text), 'svc_publisher_is_leader') === 1;
    const leader = (await leads('publisher')) ? 'publisher' : 'standby';
    const other = leader === 'publisher' ? 'standby' : 'publisher';
    programs[leader]!.kill();
    await until(other, '/metrics', (text) => {
      return valueOf(parseExposition(text), 'svc_publisher_is_leader') === 1;
    });
  }, 60_000);
});
