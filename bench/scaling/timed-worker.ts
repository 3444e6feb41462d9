import { policyCache } from '#policy/cache';
import { policySelfTest } from '#policy/self-test';
import { jwkThumbprint } from '#protocol/keys';
import { loadSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { reportReady } from '#runtime/process/lifecycle';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import { startAdmitWorker, WORKER_DEFAULTS, type AdmitWorker } from '#workers/admit/worker';
import { aborted, report, runTask } from '../harness/child.js';
import { timedPool } from './timed-pool.js';

/**
 * Entry point of the program's worker, which starts at the parent's second message and reports at exit
 * how long its transactions held the append lock.
 */

export interface TimedWorkerTask {
  databaseUrl: string;
  redisUrl: string;
  aepKeyFile: string;
}

export interface LockTimes {
  heldMs: number[];
}

runTask<TimedWorkerTask>(async (task, stopping) => {
  const signer = loadSigningKey(task.aepKeyFile);
  await policySelfTest();
  const pool = connect(task.databaseUrl, {
    application: 'bench-worker',
    max: WORKER_DEFAULTS.groupsAtOnce + WORKER_DEFAULTS.batchConcurrency + 4,
  });
  const heldMs: number[] = [];
  const context = {
    sql: timedPool(pool, (ms) => void heldMs.push(ms)),
    log: logger('bench-worker', 'warn'),
    signer,
    keyId: jwkThumbprint(nativeSha256, signer.publicKey),
    policy: policyCache(pool),
    laneLocked: false,
  };
  let worker: AdmitWorker | null = null;
  process.once('message', () => (worker = startAdmitWorker(context, task)));
  reportReady();
  await aborted(stopping);
  await (worker as AdmitWorker | null)?.close();
  await pool.end({ timeout: 5 });
  report({ heldMs });
});
