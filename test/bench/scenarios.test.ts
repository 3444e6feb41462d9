import { describe, expect, it } from 'vitest';
import type { CpuShares } from '#bench/harness/cpu';
import { batchResults, type BatchMeasured } from '#bench/scenarios/batch';

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

  it('miss their target when a run is slow, a receipt is wrong, too few receipts were checked or items are lost', () => {
    expect(oks({})).toEqual([true, true, true, true]);
    expect(oks({ proofs: 90_000 })[0]).toBe(false);
    expect(oks({ cpu: { ...cpu, total: 274 } })[1]).toBe(false);
    expect(oks({ checked: { checked: 120, denied: 2, wrong: ['x'] } })[2]).toBe(false);
    expect(oks({ checked: { checked: 99, denied: 2, wrong: [] } })[2]).toBe(false);
    expect(oks({ lost: 1 })[3]).toBe(false);
  });
});
