import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cpuSecondsBetween, cpuTimesOf } from '#bench/figures/cpu-time';
import { describeNeed, diskNeeds, neededBytes, requireRoom } from '#bench/growth/disk-need';
import { growthRows } from '#bench/rows/growth-rows';
import { median, spread } from '#bench/figures/median';
import { scaleSteps, sizesOf } from '#bench/growth/sizes';
import { OperatorError } from '#runtime/process/operator-error';

describe('a median', () => {
  it('is the middle one, or between the middle two, whatever the order', () => {
    expect(median([9, 1, 5])).toBe(5);
    expect(median([9, 1, 5, 7])).toBe(6);
    expect(median([3])).toBe(3);
    expect(median([1, NaN, 2])).toBeNaN();
    expect(() => median([])).toThrow();
    expect(spread([9.04, 1, 5], 1)).toBe('1.0–9.0');
  });
});

describe('the sizes', () => {
  it('end with what the other measurements look at', () => {
    for (const quick of [true, false]) {
      const { steps, proofs, recentLookupLimit } = sizesOf({ quick });
      expect(steps.at(-1)).toBe(proofs);
      expect(recentLookupLimit).toBeLessThan(proofs);
    }
    expect(sizesOf({ quick: false }).proofs).toBe(1_000_000);
  });

  it('go up tenfold to any number', () => {
    expect(scaleSteps(10_000_000)).toEqual([10_000, 100_000, 1_000_000, 10_000_000]);
    expect(scaleSteps(200_000)).toEqual([10_000, 100_000, 200_000]);
    expect(scaleSteps(5_000)).toEqual([5_000]);
  });
});

describe('the growth rows', () => {
  const points = [
    { proofs: 10_000, append: [200, 400, 210], lookup: [20, 40, 10] },
    { proofs: 100_000, append: [250, 480, 400], lookup: [30, 52, 13] },
    { proofs: 1_000_000, append: [252, 800, 231], lookup: [24, 48, 13] },
  ];

  it('hold each size against the smallest, turn by turn', () => {
    const rows = growthRows(points);
    expect(rows.map(({ row, value, ratio, ok }) => [row, value, ratio, ok])).toEqual([
      ['growth: append cost at 10,000', 210, null, null],
      ['growth: append cost at 100,000', 400, 1.25, true],
      ['growth: append cost at 1,000,000', 252, 1.26, false],
      ['growth: lookup cost at 10,000', 20, null, null],
      ['growth: lookup cost at 100,000', 30, 1.3, false],
      ['growth: lookup cost at 1,000,000', 24, 1.2, true],
    ]);
    expect(rows[1]?.against).toEqual({ what: 'the same at 10,000', value: 210 });
    expect(rows[0]?.note).toBe('the middle of 3 (200–400)');
    expect(rows[2]?.note).toBe('the middle of 3 (231–800), and of their ratios (1.10–2.00)');
  });

  it('miss where there is nothing to hold them against', () => {
    const other = { proofs: 20_000, append: [200, 200, 200, 200, 200, 200, 200], lookup: [NaN] };
    const held = growthRows([points[0]!, other]).filter(({ reach }) => reach !== null);
    expect(held.map(({ ok }) => ok)).toEqual([false, false]);
    expect(() => growthRows([])).toThrow();
  });
});

describe('CPU time', () => {
  it('counts what came in between whole, and what ended in between not at all', () => {
    const before = new Map([
      [1, 5],
      [2, 100],
    ]);
    const after = new Map([
      [1, 7],
      [3, 4],
    ]);
    expect(cpuSecondsBetween(before, after)).toBe(6);
  });

  it.runIf(process.platform === 'linux')('grows as a process works', () => {
    const before = cpuTimesOf(process.pid);
    expect(before.get(process.pid)).toBeGreaterThan(0);
    const until = performance.now() + 20;
    while (performance.now() < until);
    expect(cpuSecondsBetween(before, cpuTimesOf(process.pid))).toBeGreaterThan(0);
    expect([...cpuTimesOf(2 ** 30)]).toEqual([]);
  });
});

describe('the room for ten million proofs', () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'svc-room-'));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  it('is what each takes, with a margin, and what there is always', () => {
    expect(neededBytes(4_000, 10_000_000)).toBe(48e9 + 2 * 2 ** 30);
    expect(neededBytes(4_000, 0)).toBe(2 * 2 ** 30);
  });

  it('is asked of each disk for all that is on it', async () => {
    const places = [
      { directory: dir, perProof: 1_500 },
      { directory: dir, perProof: 2_500 },
    ];
    const [need, ...others] = await diskNeeds(places, 1_000_000);
    expect(others).toEqual([]);
    expect(need?.needed).toBe(neededBytes(4_000, 1_000_000));
    expect(need?.free).toBeGreaterThan(0);
    expect(await diskNeeds([], 1_000_000)).toEqual([]);
  });

  it('is refused when one has less, with what it needs and has', () => {
    const enough = { directories: ['/a'], needed: 10e9, free: 10e9 };
    const short = { directories: ['/b', '/c'], needed: 55.2e9, free: 40e9 };
    expect(describeNeed(short)).toBe('/b and /c: 55.2 GB needed, 40.0 GB free');
    requireRoom([enough], 10);
    const refusing = () => requireRoom([enough, short], 10_000_000);
    expect(refusing).toThrow(OperatorError);
    expect(refusing).toThrow(/10,000,000 more proofs.*\/b and \/c: 55\.2 GB needed/);
    expect(refusing).not.toThrow('/a');
  });
});
