import { expect, it } from 'vitest';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { groupAdmissions } from '#workers/admit/groups';
import { eventually } from '../fixtures/stack.js';

/** Groups of admissions, each of which runs until the test ends the group. */
function gatedGroups() {
  const groups: { ids: string[]; end(error?: Error): void }[] = [];
  const process = (ids: string[]) =>
    new Promise<void>((resolve, reject) => {
      groups.push({ ids, end: (error) => (error === undefined ? resolve() : reject(error)) });
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
