import { expect, it } from 'vitest';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { DeferredError } from '#workers/admit/context';
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

it('groupAdmissions > starts a single admission at once, and groups the later admissions without duplicates', async () => {
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

it('groupAdmissions > takes the owners in rotation, and puts admissions that one group left into the next group', async () => {
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
  expect((await group(2)).ids).toEqual(['y', 'c', 'z', 'd']);
  groups[2]!.end();
  expect((await group(3)).ids).toEqual(['e', 'f', 'g']);
  groups[3]!.end();
  await expect.poll(() => admissions.waiting()).toBe(0);
});

it('groupAdmissions > decides a second owner’s admission in the next group, although the first owner uses up the time of each group', async () => {
  const { groups, group, admissions } = gatedGroups();
  admissions.take(['a'], NO_REQUEST_IDS, ['slow']);
  const slow = Array.from({ length: 12 }, (_, n) => `slow-${n}`);
  const owners = slow.map(() => 'slow');
  admissions.take([...slow, 'other'], NO_REQUEST_IDS, [...owners, 'other']);
  groups[0]!.end();
  const decided: string[] = [];
  // Each group decides its first admission, and leaves the others.
  for (const n of [1, 2, 3]) {
    const [first, ...left] = (await group(n)).ids;
    decided.push(first!);
    groups[n]!.end(undefined, left);
  }
  expect(decided).toEqual(['slow-0', 'other', 'slow-1']);
});

it('groupAdmissions > processes at once the admissions that a failed group left, and retries the failed admissions later', async () => {
  const { groups, group, admissions } = gatedGroups();
  admissions.take(['a'], NO_REQUEST_IDS);
  admissions.take(['b', 'c', 'd'], NO_REQUEST_IDS);
  groups[0]!.end();
  await group(1);
  groups[1]!.end(new DeferredError(1, new Error('an unusable policy set'), ['c', 'd']));
  expect((await group(2)).ids).toEqual(['c', 'd']);
  groups[2]!.end();
  expect((await group(3)).ids).toEqual(['b']);
  groups[3]!.end();
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
