import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake } from '#sql/admissions/intake';
import { processAdmissions } from '#workers/admit/process';
import { admissionEnvelope, agentItem, newRunId } from '../fixtures/agent.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('file');
let registry: TestRegistry;
beforeAll(async () => {
  const files = await readPolicyFolder(join(packageRoot, 'examples/policies/daily-limit'));
  registry = await openRegistry(db, { policy: files });
});

const adopt = (at: Date) => db.sql`
  insert into svc.adoption (from_index, to_index, at)
  select 1000 + count(*), 1001 + count(*), ${at} from svc.adoption`;

async function outcomeOf(overrides: Record<string, unknown>) {
  const item = agentItem(registry, admissionEnvelope(overrides));
  await acceptIntake(registry.engine, [item]);
  await processAdmissions(registry.admit, [item.proofId]);
  const outcome = (await registry.readOutcomes([item.proofId])).get(item.proofId);
  return outcome?.state === 'refused' ? outcome.code : outcome?.state;
}

it('worker > rejects requests that need runs or counters from before an adoption, and decides all others', async () => {
  const facts = { amount: { decimal: '1.00' }, currency: 'EUR' };
  const refund = { action: 'ISSUE_REFUND', facts };
  const run = () => ({ run: { id: newRunId(), seq: 0 } });
  await adopt(new Date(Date.now() - 24 * 3600_000));
  expect(await outcomeOf(refund)).toBe('proved');
  expect(await outcomeOf(run())).toBe('proved');
  await adopt(new Date());
  expect(await outcomeOf(refund)).toBe('processing_failed');
  expect(await outcomeOf(run())).toBe('run_closed');
  expect(await outcomeOf({})).toBe('proved');
});
