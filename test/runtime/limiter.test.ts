import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { BusyError, Limiter, pacedLimiter } from '#runtime/concurrency';

const LIMITS = { total: 2, perOwner: 1, maxWaiting: 2, timeoutMs: 60_000 };

/** Units of work that run until the test finishes them, and the order in which they started. */
function pieces(limiter: Limiter) {
  const began: string[] = [];
  const finish = new Map<string, () => void>();
  const run = (tenantNo: number, name: string): Promise<void> =>
    limiter.run(tenantNo, () => {
      began.push(name);
      return new Promise((resolve) => finish.set(name, resolve));
    });
  const end = async (name: string): Promise<void> => {
    finish.get(name)?.();
    await new Promise(setImmediate);
  };
  return { began, run, end };
}

describe('Limiter', () => {
  it('serves tenants round-robin, each up to its limit', async () => {
    const { began, run, end } = pieces(new Limiter(LIMITS));
    const all = [
      run(1, 'a1'),
      run(1, 'a2'),
      run(1, 'a3'),
      run(2, 'b1'),
      run(2, 'b2'),
      run(3, 'c1'),
    ];
    expect(began).toEqual(['a1', 'b1']);
    for (const name of ['a1', 'b1', 'a2', 'b2', 'c1', 'a3']) await end(name);
    await Promise.all(all);
    expect(began).toEqual(['a1', 'b1', 'a2', 'b2', 'c1', 'a3']);
  });

  it('rejects work after the timeout, and at once when the queue is full', async () => {
    const { run, end, began } = pieces(new Limiter({ ...LIMITS, timeoutMs: 5 }));
    const first = run(1, 'a1');
    const waiting = [run(1, 'a2'), run(1, 'a3')];
    await expect(run(1, 'a4')).rejects.toThrow(BusyError);
    for (const one of waiting) await expect(one).rejects.toThrow(BusyError);
    await end('a1');
    await first;
    const later = run(1, 'a5');
    await end('a5');
    await later;
    expect(began).toEqual(['a1', 'a5']);
  });

  it('distinguishes an owner at its own limit from a limit that all owners share', async () => {
    const { run, end } = pieces(new Limiter({ ...LIMITS, maxWaiting: 0 }));
    const running = [run(1, 'a1')];
    await expect(run(1, 'a2')).rejects.toMatchObject({ isOwnerLimit: true });
    running.push(run(2, 'b1'));
    for (const no of [1, 3])
      await expect(run(no, 'x')).rejects.toMatchObject({ isOwnerLimit: false });
    for (const name of ['a1', 'b1']) await end(name);
    await Promise.all(running);
  });

  it('does not report an owner at its limit if the running work is slow', async () => {
    const { run, end } = pieces(new Limiter({ ...LIMITS, timeoutMs: 5 }));
    const running = run(1, 'a1');
    await expect(run(1, 'a2')).rejects.toMatchObject({ isOwnerLimit: false });
    await end('a1');
    await running;
  });
});

it('pacedLimiter > starts further work of an owner after a pause that is as long as the previous work took', async () => {
  const paced = pacedLimiter(LIMITS);
  const zero = performance.now();
  const work = async (): Promise<number> => {
    const began = performance.now() - zero;
    await sleep(200);
    return began;
  };
  const [first, second, other] = await Promise.all([
    paced(1, work),
    paced(1, work),
    paced(2, work),
  ]);
  expect(Math.max(first, other)).toBeLessThan(150);
  expect(second).toBeGreaterThan(395);
});
