import { FINDINGS } from '#protocol/monitor/findings';
import { monitorConfig } from '#runtime/config';
import { nativeCrypto } from '#runtime/crypto/node';
import { makeFolder } from '#runtime/process/files';
import { OperatorError } from '#runtime/process/operator-error';
import { reportReady } from '#runtime/process/lifecycle';
import { isBucket, openStore } from '#runtime/store/open';
import { filesIn } from '#runtime/store/store';
import { isUsageError, runMonitor } from '#sdk/cli/monitor/run';
import { monitorMetrics } from './metrics/monitor.js';
import { runService } from './service.js';

await runService('monitor', monitorConfig, async (program) => {
  const { config, log, ops, signal } = program;
  const metrics = monitorMetrics(ops.registry);
  let hasPassed = false;
  ops.readyWhen(() => ({
    ready: hasPassed,
    details: { status: hasPassed ? 'ready' : 'the first pass is not complete' },
  }));
  await makeFolder('MONITOR_DIR', config.monitorDir);
  const open = async (where: string) => (isBucket(where) ? filesIn(await openStore(where)) : where);
  const sources = [
    await open(config.monitorUrl),
    ...(await Promise.all(config.monitorMirrors.map(open))),
  ] as const;
  const running = runMonitor(
    nativeCrypto,
    {
      sources,
      logVkeys: config.pins,
      directory: config.monitorDir,
      watch: config.monitorWatch,
      intervalMs: config.monitorInterval,
      once: false,
    },
    {
      finding: (found) => {
        metrics.found(found);
        const level = FINDINGS[found.code] === 'notice' ? 'info' : 'error';
        log[level]({ finding: found }, 'monitor: finding');
      },
      passed: (pass) => {
        metrics.passed(pass);
        if (hasPassed) return;
        hasPassed = true;
        log.info({ leaves: pass.size, alarms: pass.alarms.length }, 'monitor: first pass complete');
        reportReady();
      },
    },
    signal,
  ).catch((cause: unknown) => {
    if (!isUsageError(cause)) throw cause;
    throw new OperatorError((cause as Error).message, { cause });
  });
  running.catch((error: unknown) => program.fail(error));
  program.onStop(() => running.catch(() => undefined));
});
