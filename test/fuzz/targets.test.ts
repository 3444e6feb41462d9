import { describe, expect, it } from 'vitest';
import { fuzz } from './run.js';
import type { Target } from './target.js';
import { TARGETS } from './targets.js';

/** A short run for every change; `npm run fuzz` accepts a duration for a longer run. */
const SHORT_RUN = { milliseconds: 20_000, executions: 300 };

it.each(TARGETS)(
  'parsers of untrusted input > $name handles any input without an undeclared error',
  (target) => {
    const { findings, outcomes, executions } = fuzz(target, 1, SHORT_RUN);
    expect(findings).toEqual([]);
    expect(executions).toBeGreaterThan(target.seeds.length);
    // A target that accepts every input or no input would test nothing.
    expect([...outcomes.keys()]).toContain('accepted');
    if (target.name !== 'batch-lines') expect(outcomes.size).toBeGreaterThan(1);
  },
);

describe('fuzzer', () => {
  const target = (run: Target['run']): Target => ({
    name: 'x',
    seeds: [Buffer.from('{"a":1}')],
    run,
  });

  let slowRuns = 0;

  it.each([
    ['an undeclared error', target(() => JSON.parse('{') as string)],
    [
      'a changed prototype',
      target((input) => {
        const value = Object.prototype as Record<string, unknown>;
        if (input.length > 7) value['polluted'] = 1;
        return 'accepted';
      }),
    ],
    [
      'an input that takes too long',
      target((input) => {
        // The fuzzer repeats a slow input twice.
        const isLong = input.length > 7 && slowRuns++ < 3;
        const end = performance.now() + (isLong ? 1_100 : 0);
        while (performance.now() < end);
        return 'accepted';
      }),
    ],
  ])('finds %s', (_, broken) => {
    try {
      expect(fuzz(broken, 1, { milliseconds: 10_000, executions: 20 }).findings).not.toEqual([]);
    } finally {
      delete (Object.prototype as Record<string, unknown>)['polluted'];
    }
  });
});
