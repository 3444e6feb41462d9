import { expect, it } from 'vitest';
import { startProgram } from '../fixtures/program.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';
import { testRegistry } from './world.js';

const { db } = await testRegistry();

/**
 * Speeds the clock of a watchdog up 80 times, and stops the queries for gauges, which have a watchdog
 * of their own.
 */
const SHORT_SECONDS = `
  const [every, timers] = [setInterval, process.getBuiltinModule('timers/promises')];
  globalThis.setInterval = (fn, ms) =>
    ms === 1000 ? every(() => { for (let n = 0; n < 20; n++) fn(); }, 250) : every(fn, ms);
  const sleep = timers.setTimeout;
  timers.setTimeout = (ms, ...args) => sleep(ms === 5000 ? 3_600_000 : ms, ...args);
  process.getBuiltinModule('module').syncBuiltinESMExports();`;
const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(SHORT_SECONDS)}`;

it('engine > exits when database statements do not complete', async () => {
  const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
  const engine = await startProgram('engine', {
    NODE_OPTIONS,
    DATABASE_URL: way.url,
    ENGINE_PORT: '0',
    // A stalled pool cannot be closed gracefully.
    SHUTDOWN_TIMEOUT: '500ms',
  });
  way.state.loses = 'answers';
  const stderr = (): string => engine.stderr.join('\n');
  await expect.poll(stderr).toContain('a statement made no progress for 20 s');
  way.state.loses = 'nothing';
  way.cut();
  expect(await engine.exited).toBe(1);
  way.close();
});
