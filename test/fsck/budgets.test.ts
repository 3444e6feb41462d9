import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { agentItem, admissionEnvelope } from '../fixtures/agent.js';
import { testLog } from '../fixtures/checkpoints.js';
import { withoutTriggers } from '../fixtures/database.js';
import { eraseProof } from '../fixtures/erase.js';
import { checked } from '../fixtures/damaged-copies.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';
import { pinning } from '../fixtures/pins.js';

const db = useDatabase('file');
const home = mkdtempSync(join(tmpdir(), 'svc-budgets-'));
let registry: TestRegistry;
let env: Record<string, string>;
beforeAll(async () => {
  const files = await readPolicyFolder(join(packageRoot, 'examples', 'policies', 'daily-limit'));
  const policies = Object.entries(files.policies).filter(([id]) => id !== 'bound-agents-only');
  registry = await openRegistry(db, {
    policy: { ...files, policies: Object.fromEntries(policies) },
  });
  const log = testLog(db);
  env = { DATABASE_URL: db.urlFor('svc_fsck'), DATA_DIR: home, ...pinning(log.vkey) };
});
afterAll(() => rmSync(home, { recursive: true }));

async function refund(agent: string, amount: string): Promise<string> {
  const facts = { amount: { decimal: amount }, currency: 'EUR' };
  const envelope = admissionEnvelope({ action: 'ISSUE_REFUND', agent: { id: agent }, facts });
  const [id = ''] = await registry.admitAll([agentItem(registry, envelope)]);
  await registry.verifyAll();
  return id;
}

const corrupt = async () => (await checked(env, '--only', 'registry')).corrupt;

const set = (change: string) => withoutTriggers(db, `update svc.counter set ${change}`);

it('fsck > recomputes the counters from the log', async () => {
  await refund('a', '1500.00');
  await refund('a', '600.00');
  await refund('a', '500.00');
  expect(await corrupt()).toEqual({});
  await set('value = value - 1');
  expect(await corrupt()).toEqual({ budget_differs: 1 });
  await set('value = value + 1');
  expect(await corrupt()).toEqual({});

  // Without the row of its counter, the agent could spend twice.
  await withoutTriggers(db, 'delete from svc.counter');
  expect(await corrupt()).toEqual({ budget_differs: 1 });
  await refund('a', '2000.00');
  expect(await corrupt()).toEqual({ budget_differs: 1 });
});

it('fsck > accepts the counters of a tenant with an erased proof', async () => {
  const before = await corrupt();
  const id = await refund('b', '1500.00');
  await eraseProof(db, id);
  await registry.verifyAll();
  await refund('b', '1.00');
  expect((await corrupt())['budget_differs']).toBe(before['budget_differs']);
});
