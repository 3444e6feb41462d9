import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from './connect.js';
import type { Reserved } from './transaction-pool.js';
import { TaskWatchdog, type HungError } from '../process/watchdog.js';

/**
 * Each statement is given up by the server, by the silence of its connection or by the client that
 * waits for it, all of them sooner.
 */
const HUNG_MS = 120_000;
const EVERY_MS = 5_000;

export interface PoolMonitorOptions {
  signal: AbortSignal;
  /** Called once. */
  onHung: (error: HungError) => void;
  stallTimeoutMs?: number;
  everyMs?: number;
}

/**
 * Sees that statements come back, with whatever they come back: those of the pool and those of
 * transactions. Where they do not, whoever asks waits for nothing until he gives up, and a program
 * that is started again is of more use.
 */
export async function monitorPool(sql: Sql, options: PoolMonitorOptions): Promise<void> {
  const { signal, onHung, stallTimeoutMs = HUNG_MS, everyMs = EVERY_MS } = options;
  const ends = new TaskWatchdog({ what: 'a statement', limitMs: stallTimeoutMs, onHung });
  const ask = async (): Promise<void> => {
    await sql`select 1`;
    const line = await reserve(sql);
    await line`select 1`.then(
      () => line.release(),
      () => line.destroy(),
    );
  };
  const over = new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  while (!signal.aborted) {
    // A database that is away says so at once, and is no reason to end.
    await Promise.race([ends.watch(ask).catch(() => undefined), over]);
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
  ends.stop();
}

/** Waits on when the pool is only busy: connections that never come back must show as a hang. */
async function reserve(sql: Sql): Promise<Reserved> {
  for (;;) {
    try {
      return await sql.reserve();
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'POOL_TIMEOUT') throw error;
    }
  }
}
