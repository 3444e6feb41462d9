import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { createSigningKey } from '#runtime/crypto/node';
import { openAdmitQueue } from '#runtime/queue/queues';
import { startProgram } from '../fixtures/program.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';
import { it } from './fixture.js';

/** Shortens the seconds of a watchdog and the pauses of a monitor to milliseconds. */
const SHORT_SECONDS = `
  const [every, timers] = [setInterval, process.getBuiltinModule('timers/promises')];
  globalThis.setInterval = (fn, ms) =>
    ms === 1000 ? every(() => { for (let n = 0; n < 20; n++) fn(); }, 25) : every(fn, ms);
  const sleep = timers.setTimeout;
  timers.setTimeout = (ms, ...args) => sleep(ms === 5000 ? 20 : ms, ...args);
  process.getBuiltinModule('module').syncBuiltinESMExports();`;
const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(SHORT_SECONDS)}`;

const said = (stderr: string[]): string => stderr.join('\n');

describe('a program fails fast on a stall', () => {
  it('an engine exits when statements do not complete', async ({ db }) => {
    const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
    const engine = await startProgram('engine', {
      NODE_OPTIONS,
      DATABASE_URL: way.url,
      ENGINE_PORT: '0',
      // A stalled pool cannot be closed in order.
      SHUTDOWN_TIMEOUT: '500ms',
    });
    way.state.loses = 'answers';
    await expect.poll(() => said(engine.stderr)).toContain('a statement made no progress for 20 s');
    way.state.loses = 'nothing';
    way.cut();
    expect(await engine.exited).toBe(1);
    way.close();
  });

  it('a worker exits when the statement of a job does not end', async ({ db, home, registry }) => {
    const AEP_KEY_FILE = join(home, 'aep.pem');
    createSigningKey(AEP_KEY_FILE);
    const DATABASE_URL = db.urlFor('svc_worker');
    const worker = await startProgram('worker', { NODE_OPTIONS, DATABASE_URL, AEP_KEY_FILE });
    const holder = await db.sql.reserve();
    await holder.unsafe('begin; lock table svc.intake_pending in access exclusive mode');
    const queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null });
    await queue.add([registry.item().proofId]);
    await queue.close();
    await expect.poll(() => said(worker.stderr)).toContain('a statement made no progress for 40 s');
    await holder.unsafe('rollback');
    holder.release();
    expect(await worker.exited).toBe(1);
  });
});
