import { describe, expect, it } from 'vitest';
import { backoffMs } from '#sdk/http/client';
import { retryAfterMs } from '#sdk/http/answers';

describe('backoffMs', () => {
  const retry = { baseDelayMs: 200, maxDelayMs: 10_000 };

  it('doubles up to its maximum, with jitter in the upper half of the range', () => {
    const least = [1, 2, 3, 4, 5, 6, 7, 10_000].map((n) => backoffMs(n, retry, 0));
    expect(least).toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    expect([1, 10_000].map((n) => backoffMs(n, retry, 0.5))).toEqual([150, 7_500]);
  });
});

describe('retryAfterMs', () => {
  const NOW = Date.parse('2026-11-20T12:00:00Z');
  const of = (headers: Record<string, string>): number | null =>
    retryAfterMs(new Headers(headers), NOW);

  it('parses seconds, and computes the time until a date', () => {
    expect(of({ 'retry-after': '0' })).toBe(0);
    expect(of({ 'retry-after': '120' })).toBe(120_000);
    expect(of({ 'retry-after': 'Fri, 20 Nov 2026 12:00:07 GMT' })).toBe(7_000);
    expect(of({ 'retry-after': 'Fri, 20 Nov 2026 11:00:00 GMT' })).toBe(0);
    expect(
      of({ 'retry-after': 'Fri, 20 Nov 2026 12:00:07 GMT', date: 'Fri, 20 Nov 2026 12:00:05 GMT' }),
    ).toBe(2_000);
  });

  it.each(['', '-1', '1.5', 'soon', '1e9', '99999999999', '2026-11-20T12:00:07Z', '7 '.repeat(2)])(
    'returns null for %j',
    (text) => {
      expect(of({ 'retry-after': text })).toBeNull();
    },
  );
});
