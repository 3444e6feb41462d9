import { reportReady } from '#runtime/process/lifecycle';
import type { AppenderMessage, AppenderTask, AppendSome } from './appender-task.js';
import { fill, settleLeftovers } from '../filling/fill.js';
import { openFillContext } from '../filling/fill-context.js';

/**
 * Entry point of a process that appends proofs when it is told to, one group after the other: what it
 * uses from one word to the next is what those proofs took.
 */
process.once('message', (message) => void prepare(message as AppenderTask));

const say = (message: AppenderMessage): void => void process.send?.(message);

async function prepare(task: AppenderTask): Promise<void> {
  const { context, close } = openFillContext(task, 1);
  const stopping = new AbortController();
  let appending: Promise<void> = Promise.resolve();
  const append = async ({ count }: AppendSome): Promise<void> => {
    try {
      const before = process.cpuUsage();
      const { group } = task;
      const options = { count, group, lanes: 1, signal: stopping.signal, onGroup: () => undefined };
      await fill(context, options);
      const { user, system } = process.cpuUsage(before);
      say({ cpuSeconds: (user + system) / 1e6 });
    } catch (error) {
      say({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
    }
  };
  process.on('message', (message) => {
    appending = append(message as AppendSome);
  });
  process.once('SIGTERM', () => {
    stopping.abort();
    void appending.then(close).finally(() => process.disconnect());
  });
  await settleLeftovers(context.admit);
  reportReady();
}
