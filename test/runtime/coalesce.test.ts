import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { coalesce } from '#runtime/concurrency/coalesce';

/** Never leaves by time within a test. */
const LONG_MS = 20_000;

/** Groups that are done when they are told to be. */
function held(options: { maxRunning: number }) {
  const groups: number[][] = [];
  const ends: (() => void)[] = [];
  const run = (items: number[]): Promise<number[]> => {
    groups.push(items);
    return new Promise((resolve) => ends.push(() => resolve(items)));
  };
  const send = coalesce<number, number>({ maxWaitMs: 1, maxItems: 10, ...options, run });
  return { groups, send, finish: (group: number) => ends[group]?.() };
}

describe('coalesce', () => {
  it('sends what is in flight together as one group and answers each from its own item', async () => {
    const groups: number[][] = [];
    const double = coalesce<number, number>({
      maxWaitMs: 5,
      maxItems: 100,
      run: (items) => {
        groups.push(items);
        return Promise.resolve(items.map((n) => n * 2));
      },
    });
    expect(await Promise.all([1, 2, 3].map(double))).toEqual([2, 4, 6]);
    expect(groups).toEqual([[1, 2, 3]]);
    expect(await double(4)).toBe(8);
    expect(groups).toEqual([[1, 2, 3], [4]]);
  });

  it('lets a full group leave at once', async () => {
    const sizes: number[] = [];
    const send = coalesce<number, number>({
      maxWaitMs: LONG_MS,
      maxItems: 4,
      run: (items) => {
        sizes.push(items.length);
        return Promise.resolve(items);
      },
    });
    await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(send));
    expect(sizes).toEqual([4, 4]);
  });

  it('does not wait for one group before it sends the next', async () => {
    const release: (() => void)[] = [];
    const send = coalesce<number, number>({
      maxWaitMs: LONG_MS,
      maxItems: 1,
      run: (items) => new Promise((resolve) => release.push(() => resolve(items))),
    });
    const first = send(1);
    const second = send(2);
    expect(release).toHaveLength(2);
    release[1]?.();
    expect(await second).toBe(2);
    release[0]?.();
    expect(await first).toBe(1);
  });

  it('gathers at the limit, and sends on what has come when there is a place', async () => {
    const { groups, finish, send } = held({ maxRunning: 1 });
    const first = send(1);
    await expect.poll(() => groups.length).toBe(1);
    const others = [send(2), send(3)];
    await sleep(50);
    expect(groups).toEqual([[1]]);
    finish(0);
    await first;
    await expect.poll(() => groups).toEqual([[1], [2, 3]]);
    finish(1);
    expect(await Promise.all(others)).toEqual([2, 3]);
  });

  it('gathers at the limit also what would be a full group', async () => {
    const { groups, finish, send } = held({ maxRunning: 1 });
    const all = [send(0)];
    await expect.poll(() => groups.length).toBe(1);
    for (let n = 1; n <= 11; n += 1) all.push(send(n));
    expect(groups).toEqual([[0]]);
    finish(0);
    await expect.poll(() => groups.length).toBe(2);
    expect(groups[1]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    finish(1);
    await expect.poll(() => groups.length).toBe(3);
    finish(2);
    expect(await Promise.all(all)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  });

  it('lets only the culprit of a failed group fail', async () => {
    const groups: number[][] = [];
    const send = coalesce<number, number>({
      maxWaitMs: LONG_MS,
      maxItems: 4,
      run: (items) => {
        groups.push(items);
        return items.includes(3)
          ? Promise.reject(new Error('three is not for us'))
          : Promise.resolve(items);
      },
    });
    const results = await Promise.allSettled([1, 2, 3, 4].map(send));
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    expect(results[2]).toMatchObject({ reason: new Error('three is not for us') });
    expect(groups).toEqual([[1, 2, 3, 4], [1], [2], [3], [4]]);
  });

  it('does not multiply a failure that is about no item', async () => {
    let calls = 0;
    const away = new Error('the database is away');
    const send = coalesce<number, number>({
      maxWaitMs: LONG_MS,
      maxItems: 3,
      isRetryAlone: (error) => error !== away,
      run: () => {
        calls += 1;
        return Promise.reject(away);
      },
    });
    const results = await Promise.allSettled([1, 2, 3].map(send));
    expect(results.every((one) => one.status === 'rejected' && one.reason === away)).toBe(true);
    expect(calls).toBe(1);
  });

  it('stops trying items alone when the failure turns out to be about none', async () => {
    let calls = 0;
    const away = new Error('the database is away');
    const send = coalesce<number, number>({
      maxWaitMs: LONG_MS,
      maxItems: 4,
      isRetryAlone: (error) => error !== away,
      run: (items) => {
        calls += 1;
        if (items.length > 1) return Promise.reject(new Error('one of you'));
        return items[0] === 1 ? Promise.resolve(items) : Promise.reject(away);
      },
    });
    const results = await Promise.allSettled([1, 2, 3, 4].map(send));
    expect(results.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'rejected',
      'rejected',
    ]);
    expect(calls).toBe(3);
  });

  it('gives nobody another item’s answer when there are too few or too many', async () => {
    for (const surplus of [-1, 1]) {
      const send = coalesce<number, number>({
        maxWaitMs: LONG_MS,
        maxItems: 2,
        run: (items) => Promise.resolve(Array.from({ length: items.length + surplus }, () => 0)),
      });
      const results = await Promise.allSettled([1, 2].map(send));
      expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    }
  });

  it('turns a throw of `run` itself into a rejection', async () => {
    const send = coalesce<number, number>({
      maxWaitMs: 1,
      maxItems: 2,
      run: () => {
        throw new Error('at once');
      },
    });
    await expect(send(1)).rejects.toThrow('at once');
  });
});
