import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '#runtime/process/log';
import type { BatchQueue } from '#runtime/queue/queues';
import {
  leaseNextChunk,
  requeueExpiredLeases,
  resolveDuplicateItems,
  type WatchedPlace,
} from '#sql/batches/chunks';
import type { Pool } from '#sql/db/transaction';
import { CHUNK_ITEMS } from '#sql/batches/accept';

export interface DispatchOptions {
  sql: Pool;
  log: Logger;
  queue: Pick<BatchQueue, 'add' | 'depth'>;
  /**
   * Turns that wait in the queue. What is in there goes first come, first served, so the fewer the
   * better they are shared; none, and a worker that is done has nothing to go on with.
   */
  ahead: number;
}

/**
 * Keeps the queue of turns filled, and no more than that: whose turn is next is decided when there
 * is room for it, in the registry, and not when a batch comes. Several processes may do this.
 */
export async function dispatchChunks({ sql, queue, ahead }: DispatchOptions): Promise<number> {
  let handedOut = 0;
  for (let depth = await queue.depth(); depth < ahead; depth += 1) {
    const ids = await leaseNextChunk(sql, CHUNK_ITEMS);
    if (ids === null) break;
    // A turn of which everything has been settled since is no turn.
    if (ids.length === 0) depth -= 1;
    else await queue.add(ids);
    handedOut += ids.length;
  }
  return handedOut;
}

export interface ChunkDispatcherOptions extends DispatchOptions {
  /** Milliseconds between looks at what was lost. */
  sweepEveryMs: number;
  /** Milliseconds after which a turn that was handed out and is not over comes again. */
  renewAfterMs: number;
  /** Told of turns that had to come again. */
  requeued?: (turns: number) => void;
}

export interface ChunkDispatcher {
  /** There may be room in the queue, or something new to put there. Never rejects. */
  wake(): void;
  close(): Promise<void>;
}

const WATCHED_AT_ONCE = 2_000;

/** Hands out turns whenever it is woken, and looks by itself for what the queue lost. */
export function startChunkDispatcher(options: ChunkDispatcherOptions): ChunkDispatcher {
  const { sql, log } = options;
  const stopping = new AbortController();
  let handing: Promise<void> | null = null;
  let again = false;

  async function handOut(): Promise<void> {
    do {
      again = false;
      await dispatchChunks(options);
    } while (again && !stopping.signal.aborted);
  }

  function wake(): void {
    again = true;
    if (stopping.signal.aborted) return;
    handing ??= handOut()
      .catch((error: unknown) => {
        log.warn({ err: error }, 'turns of batches cannot be handed out; the next look comes');
      })
      .finally(() => {
        handing = null;
      });
  }

  async function sweepUntilStopped(): Promise<void> {
    let place: WatchedPlace | null = null;
    while (!stopping.signal.aborted) {
      try {
        const { again: lost } = await requeueExpiredLeases(sql, options.renewAfterMs);
        if (lost > 0) log.warn({ turns: lost }, 'swept: turns of batches come again');
        options.requeued?.(lost);
        ({ next: place } = await resolveDuplicateItems(sql, WATCHED_AT_ONCE, place));
      } catch (error) {
        log.warn({ err: error }, 'the sweep of batches failed; the next one comes');
      }
      wake();
      await sleep(options.sweepEveryMs, undefined, { signal: stopping.signal }).catch(() => null);
    }
  }
  const sweeping = sweepUntilStopped();

  return {
    wake,
    close: async () => {
      stopping.abort();
      await sweeping;
      await handing;
    },
  };
}
