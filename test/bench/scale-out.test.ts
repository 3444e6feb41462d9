import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { resultsFile } from '#bench/harness/command';
import { limitOf, measuredCosts, simulate, type Setup } from '#bench/simulation/pipeline';

/** A complete run on two cores, and its published rate and delays at half load. */
const NOTE =
  'engine 22, worker 78, verifier 82, publisher 25, facade 3, Postgres 58, Redis 1, client 4, checker 4';
const MEASURED = { rate: 6_894, halfRate: 3_206, p50: 0.77, p99: 1.259 };

const costs = measuredCosts([{ name: 'batch admission: CPU per proof', note: NOTE }]);
const one: Setup = {
  costs,
  shares: [1],
  publishing: 'each',
  checkers: 1,
  workers: 4,
  verdicts: 'at each cycle',
};
const today: Setup = { ...one, workers: 1, verdicts: 'rows', cores: 2 };

/** Expects a relative deviation below `tolerance`. */
function expectNear(value: number, expected: number, tolerance = 0.05): void {
  expect(Math.abs(value / expected - 1), `${value} against ${expected}`).toBeLessThan(tolerance);
}

describe('simulation of one log', () => {
  it('reproduces the rate and the delays that were measured on two cores', () => {
    expectNear(limitOf(today), MEASURED.rate);
    const { p50, p99 } = simulate(today, MEASURED.halfRate);
    expectNear(p50, MEASURED.p50, 0.15);
    expectNear(p99, MEASURED.p99, 0.15);
  });

  it('is limited by the verifier when each task has its own core', () => {
    const limit = limitOf(one);
    expectNear(limit, 1e6 / costs.verifier);
    expect(simulate(one, limit).busiest.name).toBe('verifier');
  });
});

it('measuredCosts > reads the costs from the results, and throws for a missing cost', () => {
  expect(costs).toEqual({
    engine: 22,
    worker: 78,
    verifier: 82,
    publisher: 25,
    postgres: 58,
    others: 12,
    lock: 31.25,
  });
  expect(() => measuredCosts([])).toThrow('engine');
  const latest = readFileSync(resultsFile('latest'), 'utf8');
  const { results } = JSON.parse(latest) as { results: { name: string; note?: string }[] };
  expect(measuredCosts(results).worker).toBeGreaterThan(0);
});
