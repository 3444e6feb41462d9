import { expect, it } from 'vitest';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { groupAdmissions } from '#workers/admit/groups';
import { eventually } from '../fixtures/stack.js';

/** Groups of admissions, each of which runs until the test ends the group. */
function gatedGroups() {
  const groups: { ids: string[]; end(error?: Error, left?: string[]): void }[] = [];
  const process = (ids: string[]) =>
    new Promise<string[]>((resolve, reject) => {
      groups.push({
        ids,
        end: (error, left = []) => (error === undefined ? resolve(left) : reject(error)),
      });
    });
  const group = (n: number) =>
    eventually(() => Promise.resolve(groups[n] ?? null), 1_000, `group ${String(n)}`);
  return {
    groups,
    group,
    admissions: groupAdmissions({ groupsAtOnce: 1, idsAtOnce: 4, process }),
  };
}

it('groupAdmissions > starts a single admission at once, and groups the admissions that arrive meanwhile without duplicates', async () => {
  const { groups, group, admissions } = gatedGroups();
  admissions.take(['a'], NO_REQUEST_IDS);
  expect(groups.map(({ ids }) => ids)).toEqual([['a']]);
  for (const ids of [['b'], ['a', 'c', 'd'], ['b', 'e', 'f']]) {
    admissions.take(ids, NO_REQUEST_IDS);
  }
  expect(groups).toHaveLength(1);
  expect(admissions.waiting()).toBe(5);

  groups[0]!.end(new Error('the database is unavailable'));
  expect((await group(1)).ids).toEqual(['b', 'c', 'd', 'e']);
  // The admission of the failed group is retried once.
  await expect.poll(() => admissions.waiting()).toBe(2);
  groups[1]!.end();
  expect((await group(2)).ids).toEqual(['f', 'a']);
  groups[2]!.end(new Error('the database is unavailable'));
  expect((await group(3)).ids).toEqual(['f']);
  groups[3]!.end();
});

it('groupAdmissions > takes the owners in rotation, and processes the admissions that a group left in a later group', async () => {
  const { groups, group, admissions } = gatedGroups();
  admissions.take(['a'], NO_REQUEST_IDS, ['1']);
  const many = ['b', 'c', 'd', 'e', 'f', 'g'];
  admissions.take(
    many,
    NO_REQUEST_IDS,
    many.map(() => '1'),
  );
  admissions.take(['x', 'y'], NO_REQUEST_IDS, ['2', '3']);
  groups[0]!.end();
  expect((await group(1)).ids).toEqual(['b', 'x', 'y', 'c']);
  admissions.take(['z'], NO_REQUEST_IDS, ['2']);
  groups[1]!.end(undefined, ['y', 'c']);
  expect((await group(2)).ids).toEqual(['d', 'z', 'y', 'e']);
  groups[2]!.end();
  expect((await group(3)).ids).toEqual(['f', 'g', 'c']);
  groups[3]!.end();
  await expect.poll(() => admissions.waiting()).toBe(0);
});

it('groupAdmissions > finishes its running groups when it closes, and starts no other', async () => {
  const { groups, admissions } = gatedGroups();
  admissions.take(['a'], NO_REQUEST_IDS);
  admissions.take(['b'], NO_REQUEST_IDS);
  let isClosed = false;
  const closing = admissions.close().then(() => (isClosed = true));
  await Promise.resolve();
  expect(isClosed).toBe(false);
  groups[0]!.end();
  await closing;
  expect(groups).toHaveLength(1);
});
