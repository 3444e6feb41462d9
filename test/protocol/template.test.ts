import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TemplateReader } from '#protocol/template';
import { isTime } from '#protocol/time';

const digits = (most: number, count: number) =>
  fc.integer({ min: 0, max: most }).map((n) => String(n).padStart(count, '0'));

/** Times, and texts that differ from times only by a number out of range. */
const nearlyTimes = fc
  .tuple(
    digits(9999, 4),
    digits(14, 2),
    digits(33, 2),
    digits(25, 2),
    digits(61, 2),
    digits(61, 2),
    digits(999, 3),
  )
  .map(([y, mo, d, h, mi, s, ms]) => `${y}-${mo}-${d}T${h}:${mi}:${s}.${ms}Z`);

describe('TemplateReader', () => {
  it('accepts exactly the times that parseTime accepts', () => {
    const seen = new Set<boolean>();
    fc.assert(
      fc.property(nearlyTimes, (text) => {
        const reader = new TemplateReader(text);
        const field = reader.time();
        expect([reader.ended, field]).toEqual(isTime(text) ? [true, text] : [false, '']);
        seen.add(reader.ended);
      }),
      { numRuns: 5000 },
    );
    expect(seen.size).toBe(2);
  });
});
