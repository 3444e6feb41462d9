import { describe, expect, it } from 'vitest';
import type { CpuShares } from '#bench/harness/cpu';
import { UnexpectedAnswers } from '#bench/harness/scenario';
import type { Round } from '#bench/lookup/interleaved-load';
import { batchResults, type BatchMeasured } from '#bench/scenarios/batch';
import type { ExecuteLoadResult } from '#bench/harness/wrk';
import { executeResults, type ExecuteMeasured } from '#bench/scenarios/execute';
import { fairnessResults } from '#bench/scenarios/fairness';
import { freshnessResults } from '#bench/scenarios/freshness';
import { growthResults } from '#bench/scenarios/growth';
import { lookupResults, type LookupRounds } from '#bench/scenarios/lookup';
import { pacedResults } from '#bench/scenarios/paced';
import { tenantsResults } from '#bench/scenarios/tenants';

const cpu: CpuShares = { micros: { engine: 100, Postgres: 50 }, total: 150 };

describe('batch results', () => {
  const baseline = { processes: 2, rate: 16_000, loopMicros: 110, postgresMicros: 10 };
  const measured = (run: Partial<BatchMeasured['run']> = {}): BatchMeasured => ({
    baseline: [baseline, { ...baseline, rate: 12_000, loopMicros: 130 }],
    run: {
      proofs: 110_000,
      seconds: 10,
      cpu,
      checked: { checked: 120, denied: 2, wrong: [] },
      batches: 24,
      items: 120_000,
      lost: 0,
      retried: {},
      ...run,
    },
  });
  const oks = (run: Partial<BatchMeasured['run']>) =>
    batchResults(measured(run), false).map(({ ok }) => ok);

  it('compare rate and CPU time per proof with the baseline loop', () => {
    const [admission, cpuPerProof] = batchResults(measured(), false);
    expect(admission).toMatchObject({ value: 11_000, against: { value: 14_000 }, ok: true });
    expect(cpuPerProof).toMatchObject({ value: 150, against: { value: 130 }, ok: true });
  });

  it('miss their target when a run is slow, a receipt is wrong, checks are few or items are lost', () => {
    expect(oks({})).toEqual([true, true, true, true]);
    expect(oks({ proofs: 90_000 })[0]).toBe(false);
    expect(oks({ cpu: { ...cpu, total: 274 } })[1]).toBe(false);
    expect(oks({ checked: { checked: 120, denied: 2, wrong: ['x'] } })[2]).toBe(false);
    expect(oks({ checked: { checked: 99, denied: 2, wrong: [] } })[2]).toBe(false);
    expect(oks({ lost: 1 })[3]).toBe(false);
  });
});

describe('execute results', () => {
  const round = (
    requests: number,
    ms: number,
    more: Partial<ExecuteLoadResult> = {},
  ): ExecuteLoadResult => ({
    requests,
    seconds: 2,
    answers: { '200': requests },
    failed: 0,
    cpuSeconds: 0.2,
    latencies: Array<number>(100).fill(ms),
    cpu,
    ...more,
  });
  const measured = (more: Partial<ExecuteMeasured> = {}): ExecuteMeasured => ({
    engine: [round(9_000, 10), round(8_000, 20), round(10_000, 30)],
    echo: [round(20_000, 5), round(18_000, 5), round(22_000, 5)],
    checked: round(4_000, 4),
    receipts: { checked: 5, denied: 0, wrong: [] },
    unexpected: new UnexpectedAnswers(),
    ...more,
  });

  it('compare the median of the rounds with the echo server', () => {
    const [throughput, tail, perRequest, errors] = executeResults(measured());
    expect(throughput).toMatchObject({ value: 4_500, against: { value: 10_000 }, ok: true });
    // The slowest round has more than one percent of the requests.
    expect(tail).toMatchObject({ value: 30, ok: true });
    expect(perRequest).toMatchObject({ value: 150, against: { value: 150 }, ok: null });
    expect(errors).toMatchObject({ value: 0, ok: true });
  });

  it.each<[string, Partial<ExecuteMeasured>, number]>([
    ['a 202', { engine: [round(10, 1, { answers: { '200': 9, '202': 1 } })] }, 1],
    ['requests without an answer', { checked: round(10, 1, { failed: 2 }) }, 2],
    ['rejections by the echo', { echo: [round(10, 1, { answers: { '400': 10 } })] }, 10],
    ['a wrong receipt', { receipts: { checked: 3, denied: 0, wrong: ['x: wrong_effect'] } }, 1],
    ['no checked receipt', { receipts: { checked: 0, denied: 0, wrong: [] } }, 1],
  ])('miss their target for %s', (_, more, value) => {
    expect(executeResults(measured(more)).at(-1)).toMatchObject({ value, ok: false });
  });
});

it('fairness results > compare latency during load from another tenant with latency when idle', () => {
  const unexpected = new UnexpectedAnswers();
  unexpected.add('503 queue_too_deep', 3);
  const results = fairnessResults({
    idleMs: [10, 20],
    besideBatchesMs: [20, 50],
    besideReadsMs: [30, 61],
    batchRate: 5_000,
    readRate: 900,
    unexpected,
  });
  expect(results.map(({ value, ratio, ok }) => [value, ratio, ok])).toEqual([
    [50, 2.5, null],
    [61, 3.05, false],
    [3, null, false],
  ]);
});

it('freshness results > require 1.5 s in 99 of 100 samples, and at least one sample', () => {
  const unexpected = new UnexpectedAnswers();
  const ok = (ms: number[]) =>
    freshnessResults({ ms, fullRate: 8_000, sentRate: 4_000, unexpected }).map((one) => one.ok);
  expect(ok([...Array<number>(99).fill(700), 1_600])).toEqual([true, null, true]);
  expect(ok([...Array<number>(98).fill(700), 1_600, 1_600])[0]).toBe(false);
  expect(() => ok([])).toThrow(RangeError);
});

it('growth results > compare each log size with the smallest log, round by round', () => {
  const results = growthResults([
    { proofs: 10_000, append: [200, 400, 210], lookup: [20, 40, 10] },
    { proofs: 100_000, append: [250, 480, 400], lookup: [30, 52, 13] },
    { proofs: 1_000_000, append: [252, 800, 231], lookup: [24, 48, NaN] },
  ]);
  expect(results.map(({ name, value, ratio, ok }) => [name, value, ratio, ok])).toEqual([
    ['growth: append cost at 10,000', 210, null, null],
    ['growth: append cost at 100,000', 400, 1.25, true],
    ['growth: append cost at 1,000,000', 252, 1.26, false],
    ['growth: lookup cost at 10,000', 20, null, null],
    ['growth: lookup cost at 100,000', 30, 1.3, false],
    ['growth: lookup cost at 1,000,000', NaN, NaN, false],
  ]);
});

it('paced results > limit the CPU time per request at 50 and 200 per second, and count errors', () => {
  const share = (total: number) => ({ ms: [4, 5, 60], cpu: { ...cpu, total } });
  const saturated = {
    requests: 3_000,
    seconds: 2,
    answers: { '200': 2_998, '503': 2 },
    failed: 1,
    cpuSeconds: 1,
    latencies: [20, 40],
    cpu,
  };
  const idle = { ...cpu, total: 25_000 };
  const rates = [share(5_000), share(2_001), share(900)];
  const results = pacedResults(
    [{ queue: 'Redis', idle, rates, saturated }],
    new UnexpectedAnswers(),
  );
  expect(results.map(({ value, unit, ok }) => [value, unit, ok])).toEqual([
    [2.5, '% of a core', null],
    [60, 'ms', null],
    [5, 'ms', true],
    [60, 'ms', null],
    [2.001, 'ms', false],
    [60, 'ms', null],
    [0.9, 'ms', null],
    [1_500, 'req/s', null],
    [0.15, 'ms', null],
    [3, 'answers', false],
  ]);
});

it('tenants results > compare each number of tenants with one tenant, round by round', () => {
  const rounds = (...totals: number[]) =>
    totals.map((total) => ({ ms: [5], cpu: { ...cpu, total } }));
  const results = tenantsResults(
    [
      { tenants: 1, rounds: rounds(2_000, 4_000, 2_000) },
      { tenants: 1_000, rounds: rounds(2_500, 4_000, 2_600) },
    ],
    new UnexpectedAnswers(),
  );
  expect(results.map(({ value, ratio, ok }) => [value, ratio, ok])).toEqual([
    [2, null, null],
    [2.6, 1.25, true],
    [0, null, true],
  ]);
});

describe('lookup results', () => {
  const round = (cpuMicros: number): Round => ({
    cpuMicros,
    rate: 100,
    serverBusy: 0.9,
    loadBusy: 0.3,
    p99: 2_000,
  });
  const rounds: LookupRounds = {
    hit: [round(20), round(10), round(30)],
    nginx: [round(10), round(5), round(6)],
    miss: [round(10), round(5), round(10)],
    older: [round(50), round(25), round(75)],
    constant: [round(10), round(10), round(10)],
    evidence: [round(200), round(100), round(300)],
    hot: [round(20), round(10), round(12)],
    revalidated: [round(40), round(20), round(60)],
    cold: [round(80), round(40), round(120)],
  };

  it('compare requests per CPU second with nginx, round by round', () => {
    const results = lookupResults(rounds, 'some proofs', 4_001);
    expect(results.map(({ ratio, ok }) => [ratio, ok])).toEqual([
      [0.5, false],
      [2, true],
      [0.4, false],
      [2, false],
      [0.1, true],
      [null, false],
      [0.5, null],
      [0.5, null],
      [0.25, null],
    ]);
    expect(results[0]?.value).toBe(50_000);
    expect(results[0]?.against?.value).toBeCloseTo(1e6 / 6);
  });
});
