import { policyCache } from '#policy/cache';
import { policySelfTest } from '#policy/self-test';
import { jwkThumbprint } from '#protocol/keys';
import { loadSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { reportReady } from '#runtime/process/lifecycle';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import { startAdmitWorker, WORKER_DEFAULTS, type AdmitWorker } from '#workers/admit/worker';
import type { HeldLock, TimedWorkerTask } from './timed-worker-task.js';
import { timedPool } from './timed-pool.js';

/**
 * Entry point of a process with the worker that the program has, which takes nothing before it is
 * told to, and tells how long it held the append lock.
 */
process.once('message', (message) => void prepare(message as TimedWorkerTask));

async function prepare(task: TimedWorkerTask): Promise<void> {
  const log = logger('bench-worker', 'warn');
  const signer = loadSigningKey(task.aepKeyFile);
  await policySelfTest();
  const pool = connect(task.databaseUrl, {
    application: 'bench-worker',
    max: WORKER_DEFAULTS.groupsAtOnce + WORKER_DEFAULTS.batchConcurrency + 4,
  });
  const heldMs: number[] = [];
  const sql = timedPool(pool, (ms) => void heldMs.push(ms));
  const context = {
    sql,
    log,
    signer,
    keyId: jwkThumbprint(nativeSha256, signer.publicKey),
    policy: policyCache(pool),
    laneLocked: false,
  };
  let worker: AdmitWorker | null = null;
  process.once('message', () => (worker = startAdmitWorker(context, task)));
  process.once('SIGTERM', () => void stop());
  const stop = async (): Promise<void> => {
    await worker?.close();
    await pool.end({ timeout: 5 });
    const said: HeldLock = { heldMs };
    process.send?.(said, () => process.disconnect());
  };
  reportReady();
}
