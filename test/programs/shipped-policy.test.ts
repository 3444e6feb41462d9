import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { BOOTSTRAP, ensurePolicy, shippedPolicy } from '#programs/shipped-policy';
import { logger } from '#runtime/process/log';
import { packageRoot } from '#runtime/process/files';
import { withAuditContext } from '#sql/tenants/audit';
import {
  activatePolicy,
  activePolicy,
  storePolicySet,
  type PolicyFiles,
  type StoredPolicySet,
} from '#sql/admissions/policies';
import { join } from 'node:path';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { storeForeignSet } from '../fixtures/policy-set.js';

let db: TestDatabase;
let shipped: StoredPolicySet;
let files: PolicyFiles;
beforeAll(async () => {
  db = await freshDatabase();
  shipped = await shippedPolicy();
  files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
});
afterAll(() => db.drop());

const errors: unknown[] = [];
const log = logger('test', 'silent');
log.error = (...line: unknown[]) => void errors.push(line);

const start = () =>
  withAuditContext(db.as('svc_admin'), { actor: BOOTSTRAP, act: BOOTSTRAP }, (tx) =>
    ensurePolicy(tx, shipped, log),
  );
const inForce = async () => (await activePolicy(db.sql))?.toString('hex');
/** Stores a policy set as the first start of an earlier version did, with texts that differ from the shipped set. */
const storedAtBootstrap = () =>
  withAuditContext(db.sql, { actor: BOOTSTRAP, act: BOOTSTRAP }, async (tx) => {
    const foreign = Buffer.alloc(32, 7);
    await tx`
      insert into svc.policy_set (digest, manifest, files)
      values (${foreign}, '{}', ${tx.json({ ...files, policies: own })})`;
    return foreign;
  });
const digest = (set: { digest: Buffer }) => set.digest.toString('hex');
const own: PolicyFiles['policies'] = { own: 'permit (principal, action, resource);' };

describe('active policy set after a start', () => {
  it('is the shipped set if none was active, and remains active', async () => {
    await start();
    expect(await inForce()).toBe(digest(shipped));
    await start();
    expect(await db.sql`select from svc.policy_activation`).toHaveLength(1);
    const acts = await db.sql`select actor, act, object from svc.audit order by audit_id`;
    expect(acts.map((row) => ({ ...row }))).toEqual(
      ['policy_set', 'policy_activation'].map((object) => ({
        actor: BOOTSTRAP,
        act: BOOTSTRAP,
        object,
      })),
    );
  });

  it.each([
    ['an earlier build can no longer run', () => storeForeignSet(db, files)],
    ['its texts have changed', () => storedAtBootstrap()],
  ])('is the current shipped set when %s', async (_, store) => {
    await activatePolicy(db.sql, await store());
    await start();
    expect(await inForce()).toBe(digest(shipped));
  });

  it("is still the operator's own set, whether or not this version can run it", async () => {
    const good = await makePolicySet({ ...files, policies: own, sentences: {} });
    await storePolicySet(db.sql, good);
    await activatePolicy(db.sql, good.digest);
    await start();
    expect(await inForce()).toBe(digest(good));
    expect(errors).toEqual([]);
    const foreign = await storeForeignSet(db, { ...files, policies: own });
    await activatePolicy(db.sql, foreign);
    await start();
    expect(await inForce()).toBe(foreign.toString('hex'));
    expect(JSON.stringify(errors)).toContain('cannot be run');
  });
});
