import { expect, test } from 'vitest';
import { runBaselineLoop } from '#bench/baseline/baseline-loop';
import { createBaselineTable } from '#bench/baseline/signed-documents';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('file');

test('baseline loop > commits every row that it counts, using every CPU core', async () => {
  await createBaselineTable(db.sql);
  const registry = { ownerUrl: db.url, tenantId: 'demo', postgresPid: process.pid };
  const { signal } = new AbortController();
  const baseline = await runBaselineLoop(registry, { warmUpSeconds: 0.2, seconds: 1 }, signal);
  const [found] = await db.sql<{ rows: number; different: number }[]>`
      select count(*) as rows, count(distinct request_hash) as different from bench.baseline`;
  expect(found!.rows).toBeGreaterThanOrEqual(2_000 * baseline.processes);
  expect(found!.different).toBe(found!.rows);
  expect(baseline.rate).toBeGreaterThan(0);
  expect(baseline.loopMicros).toBeGreaterThan(0);
});
