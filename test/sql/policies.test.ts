import { randomBytes } from 'node:crypto';
import { connect as connectSocket, createServer, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import { policyAnnotations } from '#sql/admissions/policies';
import type { Pool } from '#sql/db/transaction';
import { storeOverlay, storeOverlaySet } from '#sql/admissions/overlays';
import { withoutTriggers } from '../fixtures/database.js';
import { storeForeignSet } from '../fixtures/policy-set.js';
import { issueKey } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

/** Bytes that PostgreSQL sent to `engine`. */
let received = 0;
const proxy = createServer((client) => {
  const { hostname, port } = new URL(db.url);
  const server = connectSocket(Number(port), hostname);
  server.on('data', (chunk) => (received += chunk.length));
  client.pipe(server).pipe(client);
});
let engine: Pool & { end(): Promise<void> };

beforeAll(async () => {
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const { port } = proxy.address() as AddressInfo;
  const url = Object.assign(new URL(db.urlFor('svc_engine')), { hostname: '127.0.0.1', port });
  engine = connect(url.href, { application: 'test', max: 1 });
});
afterAll(async () => {
  await engine.end();
  proxy.close();
});

it('policyAnnotations > reads the sentences of a set and its overlay, without their texts', async () => {
  const text = `${'// text\n'.repeat(50_000)}permit (principal, action, resource);`;
  const policies = { 'overlay.large': text };
  const files = {
    schema: '',
    policies,
    sentences: { large: 'Allowed.', both: 'Of the operator.' },
  };
  const base = await storeForeignSet(db, files);
  const { tenantNo } = registry;
  const digest = randomBytes(32);
  const sentences = { own: 'Of the tenant.', both: 'Of the tenant.' };
  await issueKey(registry, { scopes: ['admin'] });
  const [key] = await db.sql<[{ no: number }]>`
    select key_no as no from svc.api_key where tenant_no = ${tenantNo} order by 1 desc limit 1`;
  const overlay = { digest: randomBytes(32), document: '{}' };
  await storeOverlay(registry.engine, tenantNo, key.no, overlay, 100);
  const set = { base, digest, manifest: '{}', policies, sentences, unfit: [] };
  await withoutTriggers(db, (tx) =>
    storeOverlaySet(tx, { tenantNo, tenantId: TENANT, ...overlay }, set),
  );
  await engine`select 1`;
  received = 0;
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
  expect(received).toBeLessThan(10_000);
});
