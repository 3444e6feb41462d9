import { afterAll, beforeAll, expect, it } from 'vitest';
import { batchResultSchema } from '#protocol/schemas/batch';
import { adminOn, done } from '../../fixtures/admin.js';
import { batchCall, batchIn, executeBodies, resultsOf } from '../../fixtures/batches.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  headersFor,
  issueKey,
  startEngine,
  workBatches,
  type TestEngine,
} from '../../fixtures/engine.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

it('batch results > have every index and no item data when the tenant was erased', async () => {
  const key = await issueKey(registry);
  const items = [...executeBodies(2), { intent_id: 'Maria Markworth' }, ...executeBodies(1)];
  const { batch_id: batchId } = batchIn(await engine.call(batchCall(key, items)));
  await workBatches(registry);
  const before = await resultsOf(engine, key, batchId);
  expect(before.map(({ state }) => state)).toEqual(['admitted', 'admitted', 'invalid', 'admitted']);

  const erase = adminOn(db, { url: db.urlFor('svc_erase') });
  await done(erase('erase', 'tenant', TENANT, '--reason', 'CASE-1', '--confirm', TENANT));
  const after = await resultsOf(engine, key, batchId);
  // Clients compare the number of results with the number of items.
  expect(after.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  for (const [index, result] of after.entries()) {
    const { state, status, proof_id, problem } = batchResultSchema.parse(result);
    expect({ state, status, proof_id }).toEqual({
      state: 'erased',
      status: 410,
      proof_id: before[index]!.proof_id,
    });
    expect(problem?.code).toBe('payload_erased');
  }
  const page = await engine.call({
    method: 'GET',
    path: `/v1/batches/${batchId}/results?limit=3`,
    headers: headersFor(key),
  });
  expect(page.json['results']).toHaveLength(3);
});
