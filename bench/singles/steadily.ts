import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Begins `work` so many times a second, by the clock and not by the answers: what is slow is not asked
 * less often for it. Returns when all of them are over.
 *
 * @throws what any of them threw, and the signal's reason
 */
export async function steadily(
  options: { perSecond: number; count: number; signal: AbortSignal },
  work: (n: number) => Promise<void>,
): Promise<void> {
  const { perSecond, count, signal } = options;
  const began = performance.now();
  const begun: Promise<void>[] = [];
  const failed = new AbortController();
  for (let n = 0; n < count && !failed.signal.aborted; n += 1) {
    const early = began + (n * 1000) / perSecond - performance.now();
    if (early > 0) await sleep(early, undefined, { signal });
    const one = work(n);
    one.catch(() => failed.abort());
    begun.push(one);
  }
  await Promise.all(begun);
}
