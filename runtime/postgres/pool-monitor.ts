import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from './connect.js';
import type { Reserved } from './transaction-pool.js';
import { TaskWatchdog, type HungError } from '../process/watchdog.js';

/** Statement timeout, silence limit and client timeout all fire earlier. */
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
 * Exits the process when pooled queries or transactions stop completing; a restart recovers faster
 * than callers time out.
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
    // A database that is down fails fast, which is not a hang.
    await Promise.race([ends.watch(ask).catch(() => undefined), over]);
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
  }
  ends.stop();
}

/**
 * Keeps waiting while the pool is busy: connections that are never released must count as a hang.
 */
async function reserve(sql: Sql): Promise<Reserved> {
  for (;;) {
    try {
      return await sql.reserve();
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'POOL_TIMEOUT') throw error;
    }
  }
}
