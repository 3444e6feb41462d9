import { fill, settleLeftovers } from './fill.js';
import { openFillContext } from './fill-context.js';
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
  const { context, close } = openFillContext(task, task.lanes);
  try {
    if (task.settleLeftovers) say({ leftovers: await settleLeftovers(context.admit) });
    await fill(context, {
      ...task,
      signal: stopping.signal,
      onGroup: (count, took) => say({ filled: count, ...took }),
    });
    const { user, system } = process.cpuUsage();
    say({ over: true, cpuSeconds: (user + system) / 1e6 });
  } catch (error) {
    process.exitCode = 1;
    say({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  } finally {
    await close();
  }
}
