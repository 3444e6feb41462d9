import { afterAll, expect, it } from 'vitest';
import { parseExposition, valueOf } from '../fixtures/exposition.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testFolder } from '../fixtures/test-folder.js';
import { programsOn, testRegistry } from './world.js';

const WAIT = { timeout: 60_000, interval: 200 };

const { db, registry } = await testRegistry();
const { start, activate } = programsOn(db, await testFolder());
await activate(registry);
/** A proxy between the programs and the database. */
const proxy = await TcpProxy.open(db.url, 'other');
afterAll(() => proxy.close());
const gauges = [
  ['worker', 'svc_pending_admissions'],
  ['verifier', 'svc_verifier_lag_leaves'],
  ['publisher', 'svc_clock_skew_seconds'],
] as const;
const opsUrls = new Map<string, string>();
for (const [name] of gauges) {
  const DATABASE_URL = proxy.urlFor(db.urlFor(`svc_${name}`));
  const program = await start(name, { DATABASE_URL, OPS_PORT: '0' });
  afterAll(() => program.stop());
  opsUrls.set(name, /"ops_url":"([^"]+)"/.exec(program.stderr.join())![1]!);
}

async function ask(name: string, path: '/healthz' | '/readyz' | '/metrics') {
  const response = await fetch(opsUrls.get(name)! + path);
  return { status: response.status, text: await response.text() };
}

const metricOf = async (name: string, metric: string): Promise<number | null> =>
  valueOf(parseExposition((await ask(name, '/metrics')).text), metric);

const readiness = async (name: string): Promise<number> => (await ask(name, '/readyz')).status;

it('programs report a hanging database within seconds, and export no outdated metrics', async () => {
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
  for (const [name] of gauges) {
    await expect.poll(() => readiness(name), WAIT).toBe(200);
  }
  await expect.poll(() => metricOf('worker', 'svc_pending_admissions'), WAIT).not.toBeNull();
}, 120_000);

it('engine > exits when database statements do not complete', async () => {
  const engine = await start('engine', {
    DATABASE_URL: proxy.urlFor(db.urlFor('svc_engine')),
    // A stalled pool cannot be closed gracefully.
    SHUTDOWN_TIMEOUT: '500ms',
  });
  proxy.stall(true);
  const stderr = (): string => engine.stderr.join('\n');
  await expect.poll(stderr, { timeout: 60_000 }).toMatch(/a statement made no progress for \d+ s/);
  expect(stderr()).toContain('for 20 s');
  proxy.breakAll('end');
  proxy.stall(false);
  expect(await engine.exited).toBe(1);
}, 90_000);
