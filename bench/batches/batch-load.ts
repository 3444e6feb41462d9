import type { BatchClientMessage, BatchClientTask, SentBatch } from './batch-client-task.js';
import { startChild } from '../service/child.js';
import { builtFile } from '../service/programs.js';

/** A tenant that sends batches as fast as they become public, in a process of its own. */
export interface BatchLoad {
  pid: number;
  sent: readonly SentBatch[];
  /** Answers that said to come again, by their code. */
  waited: Readonly<Record<string, number>>;
  /** Rejects when the client fails, and settles otherwise when it has stopped. */
  running: Promise<void>;
  /** Sends no more; what was accepted is not lost. */
  stop(): Promise<void>;
}

export function startBatchLoad(
  task: BatchClientTask,
  options: { profileDir?: string | undefined; onSent: (batch: SentBatch) => void },
): BatchLoad {
  const sent: SentBatch[] = [];
  const waited: Record<string, number> = {};
  let failure: string | null = null;
  const client = startChild({
    file: builtFile('bench/batches/batch-client'),
    profileDir: options.profileDir,
    onMessage: (received) => {
      const message = received as BatchClientMessage;
      if ('sent' in message) {
        sent.push(message.sent);
        options.onSent(message.sent);
      } else if ('waited' in message) {
        const { code } = message.waited;
        waited[code] = (waited[code] ?? 0) + 1;
      } else failure = message.failed;
    },
  });
  client.send(task);
  const running = client.exited.then((code) => {
    if (code !== 0 || failure !== null) {
      throw new Error(`the client ended with ${String(code)}: ${failure ?? 'without a word'}`);
    }
  });
  running.catch(() => undefined);
  return {
    pid: client.pid,
    sent,
    waited,
    running,
    stop: async () => {
      await client.stop();
      await running;
    },
  };
}

/** Rejects when a load ends while it is still needed. */
export async function endedEarly(load: Pick<BatchLoad, 'running'>): Promise<never> {
  await load.running;
  throw new Error('the client of the batches ended before it was stopped');
}
