import { describe, expect, it } from 'vitest';
import { Semaphore } from '#api/public/snapshot/semaphore';
import { PieceCache } from '#api/public/snapshot/piece-cache';

describe('kept pieces', () => {
  it('are the most recently used within the memory limit, overhead included', () => {
    const cache = new PieceCache(100 * 1024);
    for (let i = 0; i < 1000; i++) cache.put(`piece ${i}`, new Uint8Array(1));
    const kept = Array.from({ length: 1000 }, (_, i) => cache.get(`piece ${i}`) !== undefined);
    expect(kept.lastIndexOf(false)).toBe(1000 - kept.filter(Boolean).length - 1);
    expect(kept.filter(Boolean).length).toBeGreaterThan(100);
    expect(kept.filter(Boolean).length).toBeLessThanOrEqual(200);
  });

  it('are counted once', () => {
    const cache = new PieceCache(10 * 1024);
    for (let i = 0; i < 100; i++) cache.put('the same', new Uint8Array(1024));
    cache.put('another', new Uint8Array(1024));
    cache.delete('nothing');
    expect(cache.get('the same')).toBeDefined();
    expect(cache.get('another')).toBeDefined();
    cache.put('too large', new Uint8Array(11 * 1024));
    expect(cache.get('the same')).toBeDefined();
    cache.delete('the same');
    expect(cache.get('the same')).toBeUndefined();
  });
});

describe('Semaphore', () => {
  it('rejects a caller that waited longer than maxWaitMs and runs the next one', async () => {
    const semaphore = (maxWaitMs: number): Semaphore =>
      new Semaphore({ limit: 1, maxQueue: 5, maxWaitMs, busy: () => new Error('busy') });
    const wait = (): Promise<string> => new Promise((resolve) => setTimeout(resolve, 5, 'done'));
    const impatient = semaphore(1);
    const outcomes = await Promise.allSettled([1, 2, 3].map(() => impatient.run(wait)));
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
    expect(await impatient.run(wait)).toBe('done');
    const patient = semaphore(10_000);
    expect(await Promise.all([1, 2, 3].map(() => patient.run(wait)))).toHaveLength(3);
    await expect(patient.run(() => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
    expect(await patient.run(wait)).toBe('done');
  });
});
