import { createFacade } from '#api/public/facade';
import { directorySource } from '#api/public/snapshot/source';
import { systemClock } from '#runtime/process/clock';
import { listen } from '#runtime/http/server';
import { reportReady } from '#runtime/process/lifecycle';
import { logger } from '#runtime/process/log';
import type { ExpressFacadeTask } from './public-server-tasks.js';

/**
 * Entry point of a facade that hands every request to its Express app, which answers lookups too:
 * what the listener's shortcut in front of it is worth.
 */
process.once('message', (message) => void serve(message as ExpressFacadeTask));

async function serve(task: ExpressFacadeTask): Promise<void> {
  const facade = createFacade({
    snapshotSource: directorySource(task.snapshotDir),
    logVkey: task.logVkey,
    snapshotVkey: task.snapshotVkey,
    recentLookupLimit: task.recentLookupLimit,
    clock: systemClock,
    log: logger('facade', 'warn'),
  });
  await facade.start();
  const server = await listen(facade.app, { host: '127.0.0.1', port: 0 });
  process.once('SIGTERM', () => {
    facade.close();
    void server.close(0).finally(() => {
      if (process.connected) process.disconnect();
    });
  });
  reportReady(server.url);
}
