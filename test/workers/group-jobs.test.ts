import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { setTimeout as sleep } from 'node:timers/promises';
import type { QueueConfig } from '#runtime/config';
import { openAdmitQueue, type AdmitQueue } from '#runtime/queue/queues';
import { NO_REQUEST_IDS, unpackRequestIds } from '#runtime/http/request-ids';
import { acceptIntake } from '#sql/admissions/intake';
import { DeferredError, NO_METRICS } from '#workers/admit/context';
import { groupJobs, startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { holdAppendLock, untilWaiting } from '../fixtures/append-lock.js';
import { eventually } from '../fixtures/stack.js';
import { useRegistry } from '../fixtures/use-registry.js';

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

  it('keeps the request ids of each job', async () => {
    const { groups, group, process } = gatedGroups();
    const take = groupJobs({ groupsAtOnce: 1, idsAtOnce: 9, process });
    const done = [
      take(['a'], NO_REQUEST_IDS),
      take(['b'], unpackRequestIds('r-b', ['b'])),
      take(['c'], NO_REQUEST_IDS),
      take(['d'], unpackRequestIds('r-d', ['d'])),
    ];
    groups[0]!.end();
    await done[0];
    const { ids, of } = await group(1);
    expect(ids.map(of)).toEqual(['r-b', undefined, 'r-d']);
    (await group(1)).end();
    await Promise.all(done);
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

describe('admission worker', () => {
  const { db, registry } = useRegistry('file');
  let config: QueueConfig;
  let queue: AdmitQueue;
  beforeAll(() => {
    config = { databaseUrl: db.urlFor('svc_worker'), redisUrl: null };
    queue = openAdmitQueue(config);
  });
  afterAll(() => queue.close());

  async function accepted(count: number): Promise<string[]> {
    const items = Array.from({ length: count }, () => registry.item());
    await acceptIntake(registry.engine, items);
    return items.map(({ proofId }) => proofId);
  }

  const proved = (ids: string[]) =>
    eventually(
      async () => {
        const rows = await db.sql`select from svc.log_entry where proof_id = any(${ids}::uuid[])`;
        return rows.length === ids.length ? true : null;
      },
      20_000,
      'all proofs',
    );

  it('clears a backlog of single admissions in a few transactions', async () => {
    const groups: number[] = [];
    const metrics = {
      ...NO_METRICS,
      committed: ({ admitted }: { admitted: number }) => void groups.push(admitted),
    };
    const lock = await holdAppendLock(registry.admin);
    const worker = startAdmitWorker({ ...registry.admit, metrics }, config, {
      ...WORKER_DEFAULTS,
      staleAfterMs: 60_000,
    });
    await worker.ready;
    const ids = await accepted(24);
    for (const id of ids) await queue.add([id]);
    await untilWaiting(db.sql, WORKER_DEFAULTS.groupsAtOnce);
    await eventually(
      async () => ((await queue.depth()) === 0 ? true : null),
      10_000,
      'all jobs taken',
    );
    await lock.commit();
    await proved(ids);
    await worker.close();
    expect(groups.reduce((sum, items) => sum + items, 0)).toBe(24);
    // Two single jobs were already in progress; the others were grouped.
    expect(groups.length).toBeLessThanOrEqual(WORKER_DEFAULTS.groupsAtOnce + 2);
  });

  it('does not requeue admissions while the queue has a backlog', async () => {
    const lock = await holdAppendLock(registry.admin);
    const ids = await accepted(40);
    const jobs = WORKER_DEFAULTS.jobsAtOnce + 8;
    for (const id of ids.slice(0, jobs)) await queue.add([id]);
    const worker = startAdmitWorker(registry.admit, config, {
      ...WORKER_DEFAULTS,
      requeueEveryMs: 10,
      staleAfterMs: 0,
    });
    await worker.ready;
    await untilWaiting(db.sql, WORKER_DEFAULTS.groupsAtOnce);
    await sleep(1_000);
    // At most one requeue ran before the jobs were visible, which added one or two jobs.
    expect(await queue.depth()).toBeLessThanOrEqual(8 + 2);
    await lock.commit();
    await proved(ids);
    await worker.close();
  });
});
