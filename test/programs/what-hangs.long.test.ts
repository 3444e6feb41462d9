import { expect, it } from 'vitest';
import { startProgram } from '../fixtures/program.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';
import { testRegistry } from './world.js';

const { db } = await testRegistry();

it('engine > exits when database statements do not complete', async () => {
  const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
  const engine = await startProgram('engine', {
    DATABASE_URL: way.url,
    ENGINE_PORT: '0',
    // A stalled pool cannot be closed gracefully.
    SHUTDOWN_TIMEOUT: '500ms',
  });
  way.state.loses = 'answers';
  const stderr = (): string => engine.stderr.join('\n');
  // The limit is 13 s for a statement that reads a gauge, and 20 s for any other statement.
  await expect
    .poll(stderr, { timeout: 60_000 })
    .toMatch(/a statement made no progress for (13|20) s/);
  way.state.loses = 'nothing';
  way.cut();
  expect(await engine.exited).toBe(1);
  way.close();
}, 90_000);
