import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { coalesce } from '#runtime/concurrency/coalesce';

/** No group starts by timeout within a test. */
const LONG_MS = 20_000;

/** Groups that complete on request. */
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
  it('groups concurrent calls and returns to each its own result', async () => {
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

  it('starts a full group immediately', async () => {
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

  it('starts groups concurrently', async () => {
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

  it('gathers items at the concurrency limit and starts them when a group ends', async () => {
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

  it('gathers more than a full group at the limit', async () => {
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

  it('fails only the item that causes the failure of a group', async () => {
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

  it('does not retry items separately when the failure affects all of them', async () => {
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

  it('stops retrying items separately when such a failure occurs', async () => {
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

  it('rejects all items when the number of results is wrong', async () => {
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

  it('rejects when `run` throws synchronously', async () => {
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
