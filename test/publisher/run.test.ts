import { describe, expect, it } from 'vitest';
import { DatabaseLease } from '#publisher/registry/lease';
import { type Publisher, publisherReadiness, runPublisher } from '#publisher/publisher';
import { FatalPublishError } from '#publisher/errors';
import type { CycleReport } from '#publisher/cycle';
import { WakeableSleep } from '#runtime/concurrency';
import { logger } from '#runtime/process/log';
import { StallError } from '#runtime/ops/health';
import type { Pool } from '#sql/db/transaction';

const log = logger('publisher', 'silent');

/** A publisher whose cycles the test defines. */
function fakePublisher(runCycle: (number: number) => Promise<CycleReport>) {
  let cycles = 0;
  let closed = false;
  const progress = { count: 0 };
  const publisher = {
    runCycle: () => runCycle(++cycles),
    isCurrent: () => Promise.resolve(true),
    progress: () => progress.count,
    isLeader: () => true,
    close: () => {
      closed = true;
      return Promise.resolve();
    },
  } satisfies Partial<Publisher> as unknown as Publisher;
  return { publisher, progress, cycles: () => cycles, closed: () => closed };
}

const waiting: CycleReport = { outcome: 'waiting' };

/** These tests run concurrently, because each waits for a second or more. */
describe.concurrent('runPublisher', () => {
  it('runs one cycle at a time, at once and then every second, despite errors, until the signal', async ({
    expect,
  }) => {
    const stop = new AbortController();
    let running = 0;
    let most = 0;
    let closedDuringCycle = false;
    const { publisher, cycles, closed } = fakePublisher(async (number) => {
      most = Math.max(most, ++running);
      // The third cycle is still running when the next cycle would begin.
      if (number === 3) await new Promise((resolve) => setTimeout(resolve, 1200));
      closedDuringCycle ||= closed();
      running--;
      if (number === 1) throw new Error('the disk is full');
      return waiting;
    });
    const run = runPublisher(publisher, { signal: stop.signal, log });
    expect(cycles()).toBe(1);
    await expect.poll(cycles).toBe(3);
    await new Promise((resolve) => setTimeout(resolve, 1100));
    stop.abort();
    await run;
    expect({ running, most, closedDuringCycle }).toEqual({
      running: 0,
      most: 1,
      closedDuringCycle: false,
    });
    expect(closed()).toBe(true);
    const last = cycles();
    await new Promise((resolve) => setTimeout(resolve, 1200));
    expect(cycles()).toBe(last);
  });

  it.for([1, 2])('rejects when cycle %i stalls', async (stalled, { expect }) => {
    const { publisher } = fakePublisher((number) =>
      number === stalled ? new Promise(() => undefined) : Promise.resolve(waiting),
    );
    const { signal } = new AbortController();
    await expect(runPublisher(publisher, { signal, log, stallTimeoutMs: 500 })).rejects.toThrow(
      StallError,
    );
  });

  it('continues a cycle that takes long but makes progress', async ({ expect }) => {
    const stop = new AbortController();
    const { publisher, progress, cycles } = fakePublisher(async () => {
      for (let step = 0; step < 15; step += 1) {
        progress.count += 1;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      return waiting;
    });
    const running = runPublisher(publisher, { signal: stop.signal, log, stallTimeoutMs: 900 });
    await expect.poll(cycles).toBeGreaterThanOrEqual(2);
    stop.abort();
    await running;
  });

  it('pauses after a cycle that published, even when woken', async ({ expect }) => {
    const stop = new AbortController();
    const counts = { generation: 1, treeSize: 1, newLeaves: 1, changedRecords: 1, shareChanges: 0 };
    const { publisher, cycles } = fakePublisher((number) =>
      Promise.resolve(number === 2 ? { outcome: 'published', ...counts } : waiting),
    );
    const betweenCycles = new WakeableSleep();
    const options = { signal: stop.signal, log, betweenCycles, leastPauseMs: 3_600_000 };
    const running = runPublisher(publisher, options);
    await expect.poll(cycles).toBe(2);
    betweenCycles.wake();
    await new Promise((resolve) => setTimeout(resolve, 1200));
    expect(cycles()).toBe(2);
    stop.abort();
    await running;
  });

  it('rejects when a FatalPublishError requires an operator', async ({ expect }) => {
    const reason = new FatalPublishError('log_forked', 'words');
    const { publisher, cycles, closed } = fakePublisher((number) =>
      number === 2 ? Promise.reject(reason) : Promise.resolve(waiting),
    );
    const { signal } = new AbortController();
    await expect(runPublisher(publisher, { signal, log })).rejects.toBe(reason);
    expect(cycles()).toBe(2);
    expect(closed()).toBe(true);
  });
});

it('runPublisher > reports at once when woken, but runs no complete cycle while its snapshot is current', async () => {
  const stop = new AbortController();
  const { publisher, cycles } = fakePublisher(() => Promise.resolve(waiting));
  const betweenCycles = new WakeableSleep();
  const reports: CycleReport[] = [];
  const watch = { went: (report: CycleReport) => void reports.push(report) };
  const options = { signal: stop.signal, log, watch, betweenCycles };
  const running = runPublisher(publisher, { ...options, idleMs: 3_600_000 });
  // Without the wake-ups, these cycles would take longer than the timeout of a test.
  for (let wakes = 0; wakes < 40; wakes += 1) {
    const before = reports.length;
    betweenCycles.wake();
    await expect.poll(() => reports.length, { interval: 10 }).toBeGreaterThan(before);
  }
  expect(cycles()).toBe(1);
  stop.abort();
  await running;
});

it('DatabaseLease > requires a pool of one connection', () => {
  expect(() => new DatabaseLease({ options: { max: 4 } } as Pool)).toThrow();
});

it('publisherReadiness > reports the age of a cycle that found nothing to publish', () => {
  const readiness = publisherReadiness();
  readiness.went({ outcome: 'unchanged', generation: 1 }, 1);
  const known = { role: 'leader', published_ms_ago: expect.any(Number) as number };
  expect(readiness.find().details).toMatchObject(known);
});

it('publisherReadiness > is not ready while the last verdict entry is too old', () => {
  const readiness = publisherReadiness();
  readiness.went(waiting, 0);
  expect(readiness.find().ready).toBe(true);
  readiness.went({ outcome: 'verifier_silent', expired_through: '2026-11-20T12:00:00.000Z' }, 0);
  expect(readiness.find().ready).toBe(false);
});
