import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { healthCheck } from '#runtime/ops/health';
import type { Logger } from '#runtime/process/log';
import { openOps, openOpsListener, type OpsSource, createRegistry } from '#runtime/ops/ops';

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

const good: OpsSource = {
  metrics: () => createRegistry('test').metrics(),
  readiness: () => Promise.resolve({ ready: true, details: { status: 'ready' } }),
};

async function serve(source: OpsSource, patienceMs?: number): Promise<string> {
  const server = await openOpsListener(source, { bind: '127.0.0.1', port: 0 }, patienceMs);
  stops.push(() => server.close(0));
  return server.url;
}

/** The members of a program that `openOps` needs, and the URLs that the program logs. */
function openProgram() {
  const urls: string[] = [];
  const info = (logged: { ops_url: string }) => void urls.push(logged.ops_url);
  const program = {
    signal: new AbortController().signal,
    log: { info } as unknown as Logger,
    onStop: (stop: () => unknown) => void stops.push(stop),
  };
  return { program, urls };
}

describe('operations listener', () => {
  it('serves three read-only paths', async () => {
    const url = await serve(good);
    const status = async (path: string, method = 'GET'): Promise<number> => {
      const response = await fetch(url + path, { method });
      await response.arrayBuffer();
      return response.status;
    };
    for (const path of ['/healthz', '/readyz', '/metrics', '/metrics?a=b']) {
      expect(await status(path)).toBe(200);
      expect(await status(path, 'HEAD')).toBe(200);
      expect(await status(path, 'POST')).toBe(405);
    }
    for (const path of ['/', '/metrics/', '/v1/proofs', '/api/public/verify/x', '//metrics']) {
      expect(await status(path)).toBe(404);
    }
  });

  it('opens on the default port of its program, and for a second instance on the next port', async () => {
    const { program, urls } = openProgram();
    // A separate address, because programs of other tests use the ports on 127.0.0.1.
    const config = { bind: '127.0.0.94', port: null };
    for (const name of ['engine', 'worker', 'engine'] as const)
      await openOps(name, config, program);
    expect(urls.map((url) => new URL(url).port)).toEqual(['9464', '9465', '9474']);
    const taken = openOps('engine', { ...config, port: 9464 }, program);
    await expect(taken).rejects.toThrow('Port 9464 is in use: set OPS_PORT');
  });

  it('exports a gauge of the state of each dependency', async () => {
    const { program, urls } = openProgram();
    const ops = await openOps('engine', { bind: '127.0.0.1', port: 0 }, program);
    const shown = async () =>
      (await (await fetch(`${urls[0]!}/metrics`)).text()).match(/^svc_dependency_up\{.*/gm) ?? [];
    expect(await shown()).toEqual([]);
    const dependencies = { database: 'up', queue: 'down' };
    ops.readyWhen(() => ({ ready: true, details: { status: 'degraded', dependencies } }));
    expect(await shown()).toEqual([
      'svc_dependency_up{dependency="database",program="engine"} 1',
      'svc_dependency_up{dependency="queue",program="engine"} 0',
    ]);
    ops.readyWhen(() => Promise.reject(new Error('unknown')));
    expect(await shown()).toEqual([]);
  });

  it('shows in svc_ready whether the program is ready', async () => {
    const { program, urls } = openProgram();
    const ops = await openOps('worker', { bind: '127.0.0.1', port: 0 }, program);
    const shown = async () =>
      (await (await fetch(`${urls[0]!}/metrics`)).text()).match(/^svc_ready\{.*/m)?.[0];
    expect(await shown()).toBe('svc_ready{program="worker"} 0');
    ops.readyWhen(() => ({ ready: true, details: { status: 'degraded' } }));
    expect(await shown()).toBe('svc_ready{program="worker"} 1');
    ops.readyWhen(() => Promise.reject(new Error('unknown')));
    expect(await shown()).toBe('svc_ready{program="worker"} 0');
  });

  it('collects metrics once for concurrent requests', async () => {
    const asked = { metrics: 0, readiness: 0 };
    const url = await serve({
      metrics: () => {
        asked.metrics += 1;
        return sleep(600).then(good.metrics);
      },
      readiness: () => {
        asked.readiness += 1;
        return sleep(600).then(good.readiness);
      },
    });
    // The first request of a process is slow.
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    const paths = Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? '/metrics' : '/readyz'));
    const ask = () => Promise.all(paths.map(async (path) => (await fetch(url + path)).status));
    expect(new Set(await ask())).toEqual(new Set([200]));
    expect(asked.metrics).toBeLessThanOrEqual(2);
    expect(asked.readiness).toBeLessThanOrEqual(2);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect(asked.readiness).toBeGreaterThanOrEqual(2);
  });
});

it('healthCheck > starts no further check while a check hangs, and starts a new check after the hanging check has ended', async () => {
  let asked = 0;
  let end: () => void = () => undefined;
  const find = healthCheck(() => {
    asked += 1;
    return new Promise<void>((resolve) => (end = resolve));
  });
  expect(await Promise.all([find(), find()])).toEqual(['down', 'down']);
  expect(asked).toBe(1);
  end();
  await sleep(0);
  const next = find();
  setTimeout(() => end(), 10);
  expect(await next).toBe('up');
  expect(asked).toBe(2);
});
