import { describe, expect, it } from 'vitest';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { DeferredError } from '#workers/admit/context';
import { groupJobs } from '#workers/admit/worker';
import { eventually } from '../fixtures/stack.js';

describe('groupJobs', () => {
  /** Each group runs until the test ends it. */
  function gatedGroups() {
    const groups: {
      ids: string[];
      of: (id: string) => string | undefined;
      end(error?: Error): void;
    }[] = [];
    const process = (ids: string[], { of }: { of: (id: string) => string | undefined }) =>
      new Promise<void>((resolve, reject) => {
        const end = (error?: Error): void => (error === undefined ? resolve() : reject(error));
        groups.push({ ids, of, end });
      });
    const group = (n: number) =>
      eventually(() => Promise.resolve(groups[n] ?? null), 1_000, `group ${String(n)}`);
    return { groups, group, process };
  }

  it('groups waiting jobs when a slot is free, and starts a single job at once', async () => {
    const { groups, group, process } = gatedGroups();
    const take = groupJobs({ groupsAtOnce: 1, idsAtOnce: 4, process });
    const first = take(['a'], NO_REQUEST_IDS);
    expect(groups.map(({ ids }) => ids)).toEqual([['a']]);
    const others = [['b'], ['c', 'd'], ['e', 'f'], ['g']].map((ids) => take(ids, NO_REQUEST_IDS));
    expect(groups).toHaveLength(1);

    groups[0]!.end();
    await first;
    expect((await group(1)).ids).toEqual(['b', 'c', 'd']);
    (await group(1)).end();
    await Promise.all(others.slice(0, 2));
    expect((await group(2)).ids).toEqual(['e', 'f', 'g']);
    (await group(2)).end();
    await Promise.all(others);
  });

  it('rejects only the deferred jobs of a group, but all jobs when the group fails', async () => {
    const { groups, group, process } = gatedGroups();
    const take = groupJobs({ groupsAtOnce: 1, idsAtOnce: 9, process });
    const first = take(['a'], NO_REQUEST_IDS);
    const outcomes = Promise.allSettled(
      [['b'], ['c', 'd'], ['e']].map((ids) => take(ids, NO_REQUEST_IDS)),
    );
    groups[0]!.end();
    await first;
    (await group(1)).end(new DeferredError(['d'], new Error('no such policy set')));
    expect((await outcomes).map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);

    const all = Promise.allSettled([['f'], ['g']].map((ids) => take(ids, NO_REQUEST_IDS)));
    (await group(2)).end(new Error('the database is away'));
    (await group(3)).end(new Error('the database is away'));
    expect((await all).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });
});
