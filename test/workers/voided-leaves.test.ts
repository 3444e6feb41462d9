import { beforeAll, expect, it } from 'vitest';
import { attentionFor } from '#programs/admin/status';
import { readFacts } from '#programs/admin/status/facts';
import { failingLeaves } from '#sql/ops/queries';
import type { VerifyContext } from '#workers/verify/context';
import { scrub } from '#workers/verify/scrub';
import { withoutTriggers } from '../fixtures/database.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
let verify: VerifyContext;
/** The failed verdicts that the metric counts. */
let failures = 0;

beforeAll(async () => {
  verify = {
    ...registry.verify,
    metrics: { verified: () => undefined, failed: (leaves) => (failures += leaves) },
  };
  await registry.admitAll([registry.item(), registry.item(), registry.item()]);
  await registry.verifyAll();
  await registry.changeKey('compromise', 1);
  await registry.verifyAll();
});

const scrubAll = async () => {
  while ((await scrub(verify, 1000)).urgent);
};
const alterations = async () => {
  const facts = await readFacts(registry.admin, [], []);
  return attentionFor(facts).flatMap(({ what }) => (what.includes('do not verify') ? [what] : []));
};

it('voided leaves > are counted separately from changed leaves', async () => {
  await scrubAll();
  expect(await failingLeaves(registry.admin)).toEqual({ failing: 0, voided: 3 });
  expect(failures).toBe(0);
  expect(await alterations()).toEqual([]);
});

it('voided leaves > hide no altered leaf', async () => {
  await withoutTriggers(
    db,
    `update svc.log_entry set signature = decode(repeat('00', 64), 'hex') where leaf_index = 2;
    insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
      select false, leaf, leaf, 20000, root, outcome, checks
      from svc.verdict, generate_series(1000, 11000) as leaf where not frontier and first_index = 3`,
  );
  await scrubAll();
  expect(await failingLeaves(registry.admin)).toEqual({ failing: 1, voided: 10_000 });
  expect(failures).toBe(1);
  expect(await alterations()).toEqual(['1 leaves do not verify']);
});
