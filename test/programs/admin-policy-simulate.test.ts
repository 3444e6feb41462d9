import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Change } from '#policy/simulation';
import { combine, documentOf } from '#policy/overlays';
import { activateOverlay, policiesInUse, storeOverlay } from '#sql/admissions/overlays';
import { insertApiKey } from '#sql/tenants/api-keys';
import { done } from '../fixtures/admin.js';
import { folderWith, SHIPPED } from '../fixtures/policy-folder.js';
import { TENANT } from '../fixtures/registry.js';
import { testRegistry } from './world.js';

const { db, registry, admin } = await testRegistry();
const schema = readFileSync(join(SHIPPED, 'schema.cedarschema'), 'utf8');

/** Creates an API key of the tenant with this scope, and returns the number of the key. */
async function keyWithScope(scope: string): Promise<number> {
  const keyId = randomBytes(6).toString('hex');
  const about = { tenantId: TENANT, secretHash: randomBytes(32), reviewRef: 'review-1' };
  await insertApiKey(registry.admin, { ...about, keyId, scopes: [scope] });
  const [{ no }] = await db.sql<[{ no: number }]>`
    select key_no as no from svc.api_key where key_id = ${keyId}`;
  return no;
}

describe('admin policy simulate', () => {
  it('lists the stored admissions that a draft set would decide differently', async () => {
    const [kept, changed] = await registry.admitAll([
      registry.item({ action: 'SIMULATE_KEPT' }),
      registry.item({ action: 'SIMULATE_CHANGED' }),
    ]);
    const folder = folderWith({
      'less.cedar': `forbid (principal, action, resource == Svc::Operation::"SIMULATE_CHANGED");`,
    });
    const found = await done(admin('policy', 'simulate', folder, '--since', '1h'));
    const changes = found['changes'] as Change[];
    // `denied` does not count admissions of earlier tests, which keep their effect and differ only in the reasons.
    expect(found).toMatchObject({ denied: 1, approval_required: 0, admitted: 0 });
    expect(changes.find(({ proof_id }) => proof_id === changed)).toEqual({
      proof_id: changed,
      tenant_id: TENANT,
      action: 'SIMULATE_CHANGED',
      recorded: expect.stringContaining('ADMIT [') as string,
      simulated: 'DENY [less]',
    });
    expect(changes.find(({ proof_id }) => proof_id === kept)?.simulated ?? 'ADMIT').toMatch(
      /^ADMIT/,
    );
    expect((await admin('policy', 'simulate', folder, '--since', 'long')).code).toBe(2);
  });

  it('keeps the overlay under which an admission was decided', async () => {
    const rules = {
      'not-laid-over': 'forbid (principal, action, resource == Svc::Operation::"LAID_OVER");',
    };
    const managing = await keyWithScope('policy');
    const whose = [registry.engine, registry.tenantNo, managing] as const;
    const overlay = documentOf(rules);
    const inUse = await policiesInUse(registry.engine);
    const sets = await Promise.all(inUse.map((set) => combine(set, rules)));
    expect(await storeOverlay(...whose, overlay, 10)).toBe(true);
    expect(await activateOverlay(...whose, overlay.digest, sets)).toBe(true);
    onTestFinished(async () => {
      await activateOverlay(...whose, overlay.digest, null);
    });
    const [denied] = await registry.admitAll([registry.item({ action: 'LAID_OVER' })]);
    const folder = folderWith({ 'more.cedar': 'permit (principal, action, resource);' });
    const { changes } = await done(admin('policy', 'simulate', folder, '--since', '1h'));
    expect((changes as Change[]).filter(({ proof_id }) => proof_id === denied)).toEqual([]);
  });

  it('prints the newest 100 differences and counts the rest, and writes all to a file', async () => {
    await registry.admitAll(
      Array.from({ length: 101 }, () => registry.item({ action: 'SIMULATE_MANY' })),
    );
    const folder = folderWith({
      'none.cedar': `forbid (principal, action, resource == Svc::Operation::"SIMULATE_MANY");`,
    });
    const file = join(folder, 'changes.ndjson');
    const line = ['policy', 'simulate', folder, '--since', '1h', '--changes', file];
    const found = await done(admin(...line));
    const listed = found['changes'] as Change[];
    const all = readFileSync(file, 'utf8').trimEnd().split('\n');
    const changes = all.map((one) => JSON.parse(one) as Change);
    expect(listed).toEqual(changes.slice(-100).reverse());
    expect(found).toMatchObject({ denied: 101, changes_omitted: changes.length - 100 });
    expect((await admin(...line)).err).toMatch(/cannot be written/);
  });

  it('simulates budgets with the counters of the draft set, from 0 at midnight', async () => {
    const items = Array.from({ length: 3 }, () => registry.item({ action: 'SIMULATE_COUNTED' }));
    for (const item of items) await registry.admitAll([item]);
    const counted = schema.replace(
      'budgets: {}',
      'budgets: { twice?: { before: Long, after: Long } }',
    );
    const folder = folderWith({
      'schema.cedarschema': counted,
      'counters.json': JSON.stringify({
        twice: { actions: ['SIMULATE_COUNTED'], sum: null, per: 'tenant', window: 'day' },
      }),
      'limit.cedar': `forbid (principal, action, resource == Svc::Operation::"SIMULATE_COUNTED")
        unless { context.budgets has twice && context.budgets.twice.after <= 2 };`,
    });
    const found = await done(admin('policy', 'simulate', folder, '--since', '1h'));
    const changes = found['changes'] as { action: string; proof_id: string; simulated: string }[];
    const denied = changes.filter(
      ({ action, simulated }) => action === 'SIMULATE_COUNTED' && simulated.startsWith('DENY'),
    );
    expect(denied).toMatchObject([{ proof_id: items[2]!.proofId, simulated: 'DENY [limit]' }]);
  });
});
