import { expect, it } from 'vitest';
import { startProgram } from '../fixtures/program.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testRegistry } from './world.js';

const { db } = await testRegistry();

it('engine > exits when database statements do not complete', async () => {
  const url = db.urlFor('svc_engine');
  const proxy = await TcpProxy.open(url, 'other');
  const engine = await startProgram('engine', {
    DATABASE_URL: proxy.urlFor(url),
    ENGINE_PORT: '0',
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
  await proxy.close();
}, 90_000);
