import { logRarely, type Logger } from '#runtime/process/log';
import type { BatchQueue } from '#runtime/queue/queues';
import {
  leaseNextChunks,
  requeueExpiredLeases,
  resolveDuplicateItems,
  type WatchedPlace,
} from '#sql/batches/chunks';
import type { Pool } from '#sql/db/transaction';
import { CHUNK_ITEMS } from '#sql/batches/accept';

export interface DispatchOptions {
  sql: Pool;
  log: Logger;
  queue: Pick<BatchQueue, 'addChunks' | 'depth'>;
  /**
   * Chunks kept in the queue. The queue is first come, first served, so a short queue shares the workers
   * more fairly between batches. With an empty queue, a free worker would idle.
   */
  ahead: number;
}

/**
 * Fills the chunk queue up to `ahead`. The registry picks the next chunk when the queue has room,
 * not when a batch arrives. Several processes may run this. Returns the number of admissions dispatched.
 */
export async function dispatchChunks({ sql, queue, ahead }: DispatchOptions): Promise<number> {
  let dispatched = 0;
  for (let depth = await queue.depth(); depth < ahead; depth += 1) {
    const leased = await leaseNextChunks(sql, CHUNK_ITEMS);
    if (leased === null) break;
    await queue.addChunks(leased.chunkIds);
    dispatched += leased.admissions;
  }
  return dispatched;
}

interface ChunkDispatcherOptions extends DispatchOptions {
  /** Lease of a chunk, in milliseconds; an unfinished chunk is dispatched again afterwards. */
  chunkLeaseMs: number;
  /** Called with the number of chunks whose lease expired. */
  requeued: (chunks: number) => void;
}

const DUPLICATES_PER_PASS = 2_000;

export function startChunkDispatcher(options: ChunkDispatcherOptions) {
  const { sql, log } = options;
  let isClosing = false;
  let dispatching: Promise<void> | null = null;
  let again = false;

  async function dispatchUntilQuiet(): Promise<void> {
    do {
      again = false;
      await dispatchChunks(options);
    } while (again && !isClosing);
  }

  /** To be called when the queue has room or a batch has arrived. Never throws. */
  function wake(): void {
    again = true;
    if (isClosing) return;
    dispatching ??= dispatchUntilQuiet()
      .catch((error: unknown) => {
        logRarely(log, 'warn', { err: error }, 'batch dispatcher: dispatch failed; it is retried');
      })
      .finally(() => {
        dispatching = null;
      });
  }

  let cursor: WatchedPlace | null = null;
  const requeueOnce = async (): Promise<void> => {
    const expired = await requeueExpiredLeases(sql, options.chunkLeaseMs);
    if (expired > 0) log.warn({ chunks: expired }, 'batch dispatcher: expired chunks requeued');
    options.requeued(expired);
    ({ next: cursor } = await resolveDuplicateItems(sql, DUPLICATES_PER_PASS, cursor));
  };

  return {
    wake,
    /** Requeues chunks that the queue lost, then dispatches. Never rejects. */
    requeue: () =>
      requeueOnce()
        .catch((error: unknown) =>
          logRarely(log, 'warn', { err: error }, 'batch dispatcher: requeue failed; it is retried'),
        )
        .finally(wake),
    close: async (): Promise<void> => {
      isClosing = true;
      await dispatching;
    },
  };
}
