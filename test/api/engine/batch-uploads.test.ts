import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { BatchUploads, type BatchUpload } from '#api/engine/batches/uploads';

const MIB = 1024 * 1024;
const BUDGET = 8 * MIB;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const openUploads = () => new BatchUploads({ perTenant: 2, budget: BUDGET });

/** Receives `mib` MiB of an upload, 1 MiB at a time. */
async function receive(upload: BatchUpload, mib: number): Promise<void> {
  for (let at = 0; at < mib; at += 1) await upload.received(MIB);
}

/** Advances the fake time, so that uploads that wait for memory continue. */
const waitForTimeouts = () => vi.advanceTimersByTimeAsync(10_000);

describe('BatchUploads', () => {
  it('buffers at most the memory budget plus 1 MiB per upload', async () => {
    const uploads = openUploads();
    const held = Array.from({ length: 10 }, () => 0);
    const most: number[] = [];
    const all = held.map(async (_, at) => {
      const upload = uploads.start(at);
      try {
        for (let chunk = 0; chunk < 64; chunk += 1) {
          await upload.received(MIB / 16);
          held[at] = (held[at] ?? 0) + MIB / 16;
          most.push(held.reduce((sum, bytes) => sum + Math.max(0, bytes - MIB), 0));
        }
        upload.complete();
      } finally {
        held[at] = 0;
        upload.release();
      }
    });
    const ends = Promise.allSettled(all);
    await waitForTimeouts();
    const refused = (await ends).filter(({ status }) => status === 'rejected');
    expect(refused.length).toBeGreaterThan(0);
    expect(Math.max(...most)).toBe(BUDGET);
  });

  it('evicts the upload that made no progress for longest when another upload needs memory', async () => {
    const uploads = openUploads();
    const silent = uploads.start(1);
    await receive(silent, 4);
    await vi.advanceTimersByTimeAsync(500);
    const later = uploads.start(2);
    await receive(later, 5);
    const steady = uploads.start(3);
    for (let second = 0; second < 2; second += 1) {
      await vi.advanceTimersByTimeAsync(900);
      await receive(steady, 1);
    }
    await receive(uploads.start(4), 2);
    const isEvicted = [silent, later, steady].map(({ evicted }) => evicted.aborted);
    expect(isEvicted).toEqual([true, false, false]);
    await expect(silent.received(1)).rejects.toMatchObject({ code: 'upload_too_slow' });
  });

  it('never evicts a complete upload', async () => {
    const uploads = openUploads();
    const complete = uploads.start(1);
    await receive(complete, 9);
    complete.complete();
    const other = expect(receive(uploads.start(2), 2)).rejects.toMatchObject({
      code: 'too_many_batches',
    });
    await waitForTimeouts();
    await other;
    expect(complete.evicted.aborted).toBe(false);
  });
});
