import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { policyAnnotations } from '#sql/admissions/policies';
import { storeOverlay, storeOverlaySet } from '#sql/admissions/overlays';
import { storeForeignSet } from '../fixtures/policy-set.js';
import { issueKey } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

it('policyAnnotations > reads the sentences of a set and of its overlay, which only its tenant can read', async () => {
  const policies = { 'overlay.large': 'permit (principal, action, resource);' };
  const files = {
    schema: '',
    policies,
    sentences: { large: 'Allowed.', both: 'Of the operator.' },
  };
  const base = await storeForeignSet(db, files);
  const { engine, tenantNo } = registry;
  const digest = randomBytes(32);
  const sentences = { own: 'Of the tenant.', both: 'Of the tenant.' };
  await issueKey(registry, { scopes: ['admin'] });
  const [key] = await db.sql<[{ no: number }]>`
    select key_no as no from svc.api_key where tenant_no = ${tenantNo} order by 1 desc limit 1`;
  const overlay = { digest: randomBytes(32), document: '{}' };
  await storeOverlay(engine, tenantNo, key.no, overlay, 100);
  const set = { base, digest, manifest: '{}', policies, sentences, unfit: [] };
  await storeOverlaySet(registry.admin, { tenantNo, tenantId: TENANT, ...overlay }, set);
  const found = [
    await policyAnnotations(engine, tenantNo, base),
    await policyAnnotations(engine, tenantNo, digest),
    await policyAnnotations(engine, tenantNo + 1, digest),
    await policyAnnotations(engine, tenantNo, randomBytes(32)),
  ];
  expect(found.map((one) => Object.fromEntries(one))).toEqual([
    files.sentences,
    { ...files.sentences, own: 'Of the tenant.' },
    {},
    {},
  ]);
});
