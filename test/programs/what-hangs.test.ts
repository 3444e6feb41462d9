import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSigningKey } from '#runtime/crypto/node';
import { openAdmitQueue } from '#runtime/queue/queues';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startProgram } from '../fixtures/program.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { startTcpProxy } from '../fixtures/tcp-proxy.js';

/**
 * Makes the seconds of a watchdog and the pauses of a pulse a few milliseconds long, in a program that
 * is otherwise itself. What is too slow for that only ends sooner, and in the same way.
 */
const SHORT_SECONDS = `
  const [every, timers] = [setInterval, process.getBuiltinModule('timers/promises')];
  globalThis.setInterval = (fn, ms) =>
    ms === 1000 ? every(() => { for (let n = 0; n < 20; n++) fn(); }, 25) : every(fn, ms);
  const sleep = timers.setTimeout;
  timers.setTimeout = (ms, ...args) => sleep(ms === 5000 ? 20 : ms, ...args);
  process.getBuiltinModule('module').syncBuiltinESMExports();`;
const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(SHORT_SECONDS)}`;

let db: TestDatabase;
let registry: TestRegistry;
let home: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  home = await mkdtemp(join(tmpdir(), 'svc-hangs-'));
});
afterAll(async () => {
  await db.drop();
  await rm(home, { recursive: true, force: true });
});

const said = (stderr: string[]): string => stderr.join('\n');

describe('a program fails fast on a stall', () => {
  it('an engine exits when statements do not complete', async () => {
    const way = await startTcpProxy(new URL(db.urlFor('svc_engine')));
    const engine = await startProgram('engine', {
      NODE_OPTIONS,
      DATABASE_URL: way.url,
      ENGINE_PORT: '0',
      // Of what hangs nothing can be closed in order.
      SHUTDOWN_TIMEOUT: '500ms',
    });
    way.state.loses = 'answers';
    await expect
      .poll(() => said(engine.stderr))
      .toContain('a statement made no progress for 120 s');
    way.state.loses = 'nothing';
    way.cut();
    expect(await engine.exited).toBe(1);
    way.close();
  });

  it('a worker exits when a job does not end', async () => {
    const AEP_KEY_FILE = join(home, 'aep.pem');
    createSigningKey(AEP_KEY_FILE);
    const DATABASE_URL = db.urlFor('svc_worker');
    const worker = await startProgram('worker', { NODE_OPTIONS, DATABASE_URL, AEP_KEY_FILE });
    const holder = await db.sql.reserve();
    await holder.unsafe('begin; lock table svc.intake_pending in access exclusive mode');
    const queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null });
    await queue.add([registry.item().proofId]);
    await queue.close();
    await expect
      .poll(() => said(worker.stderr))
      .toContain('a worker job made no progress for 600 s');
    await holder.unsafe('rollback');
    holder.release();
    expect(await worker.exited).toBe(1);
  });
});
