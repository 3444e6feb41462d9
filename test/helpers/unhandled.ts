import { setTimeout as sleep } from 'node:timers/promises';

/** What becomes of a rejection is known when the turn of the event loop is over in which it came. */
const SETTLED_MS = 10;

/** What fails in this process while `work` goes on, and nobody handles: it would end a program. */
export async function unhandledIn(work: () => Promise<unknown>): Promise<unknown[]> {
  const unhandled: unknown[] = [];
  const take = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', take).on('uncaughtException', take);
  try {
    await work();
    await sleep(SETTLED_MS);
  } finally {
    process.off('unhandledRejection', take).off('uncaughtException', take);
  }
  return unhandled;
}
