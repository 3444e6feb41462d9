import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { coalesce, type CoalesceOptions } from '#runtime/concurrency';

const UNAVAILABLE = new Error('the database is unavailable');

/** A coalescer and the groups that it ran. Only `maxWaitMs` lets a partial group start. */
function batcher(options: Partial<CoalesceOptions<number, number>>) {
  const groups: number[][] = [];
  const { run = (items) => Promise.resolve(items) } = options;
  const send = coalesce<number, number>({
    maxWaitMs: 20_000,
    maxItems: 4,
    isRetryAlone: (error) => error !== UNAVAILABLE,
    ...options,
    run: (items) => {
      groups.push(items);
      return run(items);
    },
  });
  const settle = (items: number[]) => Promise.allSettled(items.map(send));
  return { groups, send, settle };
}

it('coalesce > collects items in full groups while the concurrency limit is reached', async () => {
  const ends: (() => void)[] = [];
  const { groups, send } = batcher({
    maxWaitMs: 1,
    maxItems: 10,
    maxRunning: 1,
    run: (items) => new Promise((resolve) => ends.push(() => resolve(items))),
  });
  const all = [send(0)];
  await expect.poll(() => groups.length).toBe(1);
  for (let n = 1; n <= 11; n += 1) all.push(send(n));
  await sleep(50);
  expect(groups).toEqual([[0]]);
  ends[0]!();
  await expect.poll(() => groups.length).toBe(2);
  expect(groups[1]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  ends[1]!();
  await expect.poll(() => groups.length).toBe(3);
  ends[2]!();
  expect(await Promise.all(all)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
});

it('coalesce > stops retrying items separately when a failure affects every item', async () => {
  const { groups, settle } = batcher({
    run: (items) => {
      if (items.length > 1) return Promise.reject(new Error('one of them'));
      return items[0] === 1 ? Promise.resolve(items) : Promise.reject(UNAVAILABLE);
    },
  });
  const statuses = (await settle([1, 2, 3, 4])).map(({ status }) => status);
  expect(statuses).toEqual(['fulfilled', 'rejected', 'rejected', 'rejected']);
  expect(groups).toHaveLength(3);
});
