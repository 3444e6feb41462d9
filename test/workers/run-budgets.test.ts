import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake, type IntakeItem } from '#sql/admissions/intake';
import { processAdmissions } from '#workers/admit/process';
import { admissionEnvelope, agentItem, newRunId } from '../fixtures/agent.js';
import { testLog } from '../fixtures/checkpoints.js';
import { withoutTriggers } from '../fixtures/database.js';
import { checked } from '../fixtures/damaged-copies.js';
import { eraseProof } from '../fixtures/erase.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';

const db = useDatabase('file');
let registry: TestRegistry;
beforeAll(async () => {
  const policy = await readPolicyFolder(join(packageRoot, 'examples', 'policies', 'run-limit'));
  registry = await openRegistry(db, { policy });
});

const mail = (run: object, agent = 'agent-7') =>
  agentItem(registry, admissionEnvelope({ action: 'SEND_MAIL', agent: { id: agent }, ...run }));

interface Row {
  effect: string;
  reasons: string[];
  budget: { window: { run: string | null }; before: number; after: number };
}

async function decide(...items: IntakeItem[]): Promise<Row[]> {
  await acceptIntake(registry.engine, items);
  const ids = items.map(({ proofId }) => proofId);
  await processAdmissions(registry.admit, ids);
  return db.sql<Row[]>`
    select effect, reasons, budgets -> 'mails' as budget
    from svc.log_entry where proof_id = any(${ids}::uuid[]) order by leaf_index`;
}

const findCorrupt = async (log: ReturnType<typeof testLog>) => {
  const DATA_DIR = await testFolder();
  const env = { DATABASE_URL: db.urlFor('svc_fsck'), DATA_DIR, ...pinning(log.vkey) };
  return (await checked(env, '--only', 'registry')).corrupt;
};

it('counter per run > limits each run of each agent, and denies requests outside of runs', async () => {
  const [one, other] = [newRunId(), newRunId()];
  const inRun = (id: string, seq: number, agent?: string) => mail({ run: { id, seq } }, agent);
  const four = await decide(...[0, 1, 2, 3].map((seq) => inRun(one, seq)));
  expect(four.map(({ effect }) => effect)).toEqual(['ADMIT', 'ADMIT', 'ADMIT', 'DENY']);
  expect(four[3]).toEqual({
    effect: 'DENY',
    reasons: ['at-most-3-a-run'],
    budget: { window: { run: one }, before: 3, after: 4 },
  });
  const admitted = await decide(inRun(other, 0), inRun(one, 0, 'agent-8'));
  expect(admitted.map(({ effect, budget }) => [effect, budget.before])).toEqual([
    ['ADMIT', 0],
    ['ADMIT', 0],
  ]);
  // A cached decision about an input in a run must not apply to the same input in no run.
  const denied = { effect: 'DENY', reasons: ['budget.mails'] };
  const [outside, execution] = await decide(mail({}), registry.item({ action: 'SEND_MAIL' }));
  const none = { window: { run: null }, before: 0, after: 0 };
  expect(outside).toEqual({ ...denied, budget: none });
  expect(execution).toEqual({ ...denied, budget: none });
  await registry.verifyAll();
  expect(await db.sql`select from svc.verdict where outcome = 'fail'`).toHaveLength(0);
  const log = testLog(db);
  await log.publish();
  expect(await findCorrupt(log)).toEqual({});
  await withoutTriggers(db, 'update svc.counter set value = value - 1');
  expect(await findCorrupt(log)).toEqual({ budget_differs: 3 });
  await withoutTriggers(db, 'update svc.counter set value = value + 1');
  const [{ id }] = await db.sql<[{ id: string }]>`
    select proof_id as id from svc.log_entry where effect = 'ADMIT' limit 1`;
  await eraseProof(db, id);
  await registry.verifyAll();
  expect(await findCorrupt(log)).toEqual({});
  // Without the row of its counter, an agent could spend twice.
  await withoutTriggers(db, 'delete from svc.counter');
  expect(await findCorrupt(log)).toEqual({ budget_differs: 3 });
});
