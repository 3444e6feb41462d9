import { availableParallelism, loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

/** Upper bound of {@link slowness}: a process that takes longer is considered stalled. */
const SLOWEST = 4;

/** The factor by which everything takes longer than on an idle machine. */
export const slowness = (load: number, processors: number): number =>
  Math.min(SLOWEST, Math.max(1, load / processors));

/** Whether this machine is too busy for checks of response times. */
export const isOverloaded = (): boolean => slownessNow() >= SLOWEST;

export const slownessNow = (): number => slowness(loadavg()[0] ?? 0, availableParallelism());

/** A deadline that the CPU load extends, so that a busy machine is not reported as a hang. */
export class Deadline {
  private seenAt: number;

  constructor(
    private leftMs: number,
    private readonly now: () => number = () => performance.now(),
    private readonly slow: () => number = slownessNow,
  ) {
    this.seenAt = now();
  }

  get hasPassed(): boolean {
    const now = this.now();
    this.leftMs -= (now - this.seenAt) / this.slow();
    this.seenAt = now;
    return this.leftMs <= 0;
  }
}

const LOOK_EVERY_MS = 200;

/** @throws Error with the message `otherwise` after the deadline */
export async function inTime<T>(promise: Promise<T>, ms: number, otherwise: string): Promise<T> {
  const deadline = new Deadline(ms);
  const over = new AbortController();
  const { signal } = over;
  const late = async (): Promise<never> => {
    while (!deadline.hasPassed) await sleep(LOOK_EVERY_MS, undefined, { signal });
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

/** Polls a condition. @returns whether the condition was true before the deadline */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  ms: number,
  everyMs = 50,
): Promise<boolean> {
  const deadline = new Deadline(ms);
  for (;;) {
    if (await isSo()) return true;
    if (deadline.hasPassed) return false;
    await sleep(everyMs);
  }
}

const AT_ONCE = 16;

/** Calls `work` for each item, a limited number at a time. */
export async function forEach<T>(
  all: readonly T[],
  call: (one: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let one = all[next++]; one !== undefined; one = all[next++]) await call(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}
