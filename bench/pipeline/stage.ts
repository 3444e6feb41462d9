import { connect, type Sql } from '#runtime/postgres/connect';
import { reportReady } from '#runtime/process/lifecycle';
import type { PipelineTask } from './task.js';

/** Announcements of one stage to the next. */
export type Channel = 'bench_accepted' | 'bench_signed' | 'bench_verified';

/** How far the stage before has come, as it last said. */
export class Ahead {
  #wake: (() => void)[] = [];

  /** Waits for the next announcement, or a while: one that was missed is made up for. */
  heard(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, AT_MOST_MS);
      this.#wake.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  wake(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
}

const AT_MOST_MS = 100;

export async function listenTo(
  sql: Sql,
  channel: Channel,
  heard: (payload: string) => void,
): Promise<void> {
  await sql.listen(channel, heard);
}

/** Tells the next stage how far this one has committed. */
export async function announce(sql: Sql, channel: Channel, seq: number): Promise<void> {
  await sql`select pg_notify(${channel}, ${String(seq)})`;
}

/** Until the process is told to end. */
export const stopping = new AbortController();

/**
 * The body of a stage's process: it is told its task, says where it serves if it does, and ends with
 * SIGTERM. Whatever goes wrong ends it with 1, and the measurement with it.
 */
export function runStage(
  work: (sql: Sql, task: PipelineTask, serves: (url?: string) => void) => Promise<void>,
): void {
  process.once('SIGTERM', () => stopping.abort());
  process.once('disconnect', () => stopping.abort());
  process.once('message', (message) => void run(message as PipelineTask));

  async function run(task: PipelineTask): Promise<void> {
    const sql = connect(task.databaseUrl, { application: 'bench-pipeline', max: 2 });
    try {
      await work(sql, task, reportReady);
    } catch (error) {
      process.exitCode = 1;
      process.send?.({ failed: error instanceof Error ? (error.stack ?? error.message) : error });
    } finally {
      await sql.end({ timeout: 2 });
      if (process.connected) process.disconnect();
    }
  }
}
