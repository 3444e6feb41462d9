import { jwkThumbprint } from '#protocol/keys';
import { policyCache } from '#policy/cache';
import { loadSigningKey, nativeSha256 } from '#runtime/crypto';
import { logger } from '#runtime/log';
import { connect } from '#runtime/postgres';
import { fill, settleLeftovers } from './fill.js';
import type { FillerMessage, FillerTask } from './filler-task.js';

/** Entry point of a process that fills. Its starter sends the task, and hears of every group. */

const stopping = new AbortController();
process.once('message', (message) => {
  // From here on there is something to finish first.
  process.once('disconnect', () => stopping.abort());
  process.once('SIGTERM', () => stopping.abort());
  void work(message as FillerTask).finally(() => {
    if (process.connected) process.disconnect();
  });
});

const say = (message: FillerMessage): void => {
  if (process.connected) process.send?.(message);
};

async function work(task: FillerTask): Promise<void> {
  const { lanes, tenant } = task;
  const engine = connect(task.engineUrl, { application: 'bench-engine', max: lanes });
  const sql = connect(task.workerUrl, { application: 'bench-worker', max: lanes + 2 });
  try {
    const signer = loadSigningKey(task.aepKeyFile);
    const admit = {
      sql,
      log: logger('bench', 'warn'),
      signer,
      keyId: jwkThumbprint(nativeSha256, signer.publicKey),
      policy: policyCache(sql),
      laneLocked: false,
    };
    if (task.settleLeftovers) say({ leftovers: await settleLeftovers(admit) });
    await fill(
      { engine, admit, tenant },
      {
        ...task,
        signal: stopping.signal,
        onGroup: (count, took) => say({ filled: count, ...took }),
      },
    );
    const { user, system } = process.cpuUsage();
    say({ over: true, cpuSeconds: (user + system) / 1e6 });
  } catch (error) {
    process.exitCode = 1;
    say({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  } finally {
    await engine.end({ timeout: 5 });
    await sql.end({ timeout: 5 });
  }
}
