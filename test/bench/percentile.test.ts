import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { percentile, percentileOf } from '#bench/figures/percentile';

describe('a percentile', () => {
  it('is the nearest rank', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);
    expect(percentileOf(hundred, 1)).toBe(1);
    expect(percentileOf(hundred, 50)).toBe(50);
    expect(percentileOf(hundred, 99)).toBe(99);
    expect(percentileOf(hundred, 99.1)).toBe(100);
    expect(percentileOf(hundred, 100)).toBe(100);
    // From the worked example of the definition.
    expect([5, 30, 40, 50, 100].map((p) => percentileOf([15, 20, 35, 40, 50], p))).toEqual([
      15, 20, 20, 35, 50,
    ]);
    expect(percentileOf([7], 99)).toBe(7);
  });

  it('counts how often a value was seen, in parts of a time too', () => {
    const seen = [
      [30, 1],
      [10, 98],
      [20, 1],
    ] as const;
    expect([98, 98.5, 99, 100].map((p) => percentile(seen, p))).toEqual([10, 20, 20, 30]);
    const thirds = Array.from({ length: 300 }, (_, i) => [i + 1, 1 / 3] as const);
    expect([1, 50, 99, 100].map((p) => percentile(thirds, p))).toEqual([3, 150, 297, 300]);
    expect(
      percentile(
        [
          [1, 0],
          [2, 5],
        ],
        1,
      ),
    ).toBe(2);
  });

  it('has as many values not above it as it says, and not one more than it needs', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 50 }), { minLength: 1, maxLength: 200 }),
        fc.integer({ min: 1, max: 100 }),
        (values, percent) => {
          const found = percentileOf(values, percent);
          const share = (wanted: (value: number) => boolean): number =>
            values.filter(wanted).length * 100;
          expect(values).toContain(found);
          expect(share((value) => value <= found)).toBeGreaterThanOrEqual(percent * values.length);
          expect(share((value) => value < found)).toBeLessThan(percent * values.length);
        },
      ),
    );
  });

  it('is none of nothing, nor where there can be none', () => {
    expect(() => percentileOf([], 50)).toThrow(RangeError);
    expect(() => percentile([[1, 0]], 50)).toThrow(RangeError);
    for (const percent of [0, -1, 100.1, NaN]) {
      expect(() => percentileOf([1], percent)).toThrow(RangeError);
    }
  });
});
