import { availableParallelism, loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

/** Upper bound of the factor: beyond it a process hangs, and must be reported. */
const SLOWEST = 4;

/** How many times longer everything takes than on a machine that has nothing else to do. */
export const slowness = (load: number, processors: number): number =>
  Math.min(SLOWEST, Math.max(1, load / processors));

const slownessNow = (): number => slowness(loadavg()[0] ?? 0, availableParallelism());

/**
 * Time that is given to something, which passes the slower the more others are waiting for the
 * processors: who is starved has more of it, and who hangs comes to its end all the same.
 */
export class Deadline {
  private seenAt: number;

  constructor(
    private leftMs: number,
    private readonly now: () => number = () => performance.now(),
    private readonly slow: () => number = slownessNow,
  ) {
    this.seenAt = now();
  }

  get isOver(): boolean {
    const now = this.now();
    this.leftMs -= (now - this.seenAt) / this.slow();
    this.seenAt = now;
    return this.leftMs <= 0;
  }
}

const LOOK_EVERY_MS = 200;

/** @throws Error with `otherwise` when it does not come in its time */
export async function inTime<T>(promise: Promise<T>, ms: number, otherwise: string): Promise<T> {
  const deadline = new Deadline(ms);
  const over = new AbortController();
  const { signal } = over;
  const late = async (): Promise<never> => {
    while (!deadline.isOver) await sleep(LOOK_EVERY_MS, undefined, { signal });
    throw new Error(otherwise);
  };
  const giveUp = late();
  giveUp.catch(() => undefined);
  try {
    return await Promise.race([promise, giveUp]);
  } finally {
    over.abort();
  }
}

/** Polls a condition. @returns whether it held before the deadline */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  ms: number,
  everyMs = 50,
): Promise<boolean> {
  const deadline = new Deadline(ms);
  for (;;) {
    if (await isSo()) return true;
    if (deadline.isOver) return false;
    await sleep(everyMs);
  }
}
