import { expect, it } from 'vitest';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

/** A backend flushes its statistics on demand; otherwise it may take ten seconds. */
const statisticsFlushed = async (): Promise<void> => {
  const lines = await Promise.all(Array.from({ length: 4 }, () => registry.engine.reserve()));
  for (const line of lines) {
    await line`select pg_stat_force_next_flush()`;
    line.release();
  }
};

const scansOf = async (index: string): Promise<number> => {
  const [row] = await db.sql<{ idx_scan: number }[]>`
    select idx_scan::int from pg_stat_user_indexes where indexrelname = ${index}`;
  return row?.idx_scan ?? NaN;
};

// Until the table is first analyzed, each connection keeps the plan for an empty table, and a tenant may
// have any number of proofs by then.
it('readOutcomes > uses the index of proof ids even when its plan was cached for an empty table', async () => {
  const planned = registry.item().proofId;
  for (let i = 0; i < 10; i += 1) await registry.readOutcomes([planned]);
  const ids = await registry.admitAll(Array.from({ length: 30 }, () => registry.item()));
  await statisticsFlushed();
  const tenants = await scansOf('log_entry_of_tenant');
  const found = await registry.readOutcomes(ids);
  await statisticsFlushed();
  expect([...found.keys()].sort()).toEqual([...ids].sort());
  await expect.poll(() => scansOf('log_entry_proof_id_key')).toBeGreaterThanOrEqual(ids.length);
  expect(await scansOf('log_entry_of_tenant')).toBe(tenants);
});

it('readOutcomes > returns the reasons in the AEP of a denial', async () => {
  const [admitted = '', denied = ''] = await registry.admitAll([
    registry.item(),
    registry.item({ action: 'DELETE_AUDIT_LOG' }),
  ]);
  const found = await registry.readOutcomes([admitted, denied]);
  expect(found.get(admitted)).toMatchObject({ state: 'proved', effect: 'ADMIT', reasons: [] });
  expect(found.get(denied)).toMatchObject({ effect: 'DENY', reasons: ['audit-log-is-kept'] });
});
