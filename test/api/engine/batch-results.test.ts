import { expect } from 'vitest';
import { canonicalBytes, canonicalize, type JsonValue } from '#protocol/json';
import { batchResultSchema, type BatchResult, type BatchResults } from '#protocol/schemas/batch';
import { adminOn, done } from '../../fixtures/admin.js';
import { BATCHES, batchIn, executeBodies, LINES } from '../../fixtures/batches.js';
import { executeBody, workBatches } from '../../fixtures/engine.js';
import { activationBody, NO_DELETIONS, overlayBody, overlayCase } from '../../fixtures/overlays.js';
import { TENANT } from '../../fixtures/registry.js';
import { batchTest } from './batch-setup.js';

const it = batchTest();

it('batch results > are served in consecutive pages of canonical JSON', async ({
  completed,
  setup: { get },
}) => {
  const items = [...executeBodies(7), {}, executeBody({ action: 'DELETE_AUDIT_LOG' })];
  const { batchId, results } = await completed(items);
  const found: BatchResult[] = [];
  let cursor = '';
  let pages = 0;
  do {
    const path = `${BATCHES}/${batchId}/results?limit=4${cursor && `&cursor=${cursor}`}`;
    const reply = await get(path);
    expect(reply.bytes).toEqual(Buffer.from(canonicalBytes(reply.json as JsonValue)));
    found.push(...(reply.json['results'] as BatchResult[]));
    cursor = (reply.json['next_cursor'] as string | null) ?? '';
    pages += 1;
  } while (cursor !== '');
  expect(pages).toBe(3);
  expect(found).toEqual(results);
  const headers = { Accept: LINES['Content-Type'] };
  const two = await get(`${BATCHES}/${batchId}/results?limit=2`, headers);
  expect(two.headers['content-type']).toBe(LINES['Content-Type']);
  const lines = results.slice(0, 2).map((one) => canonicalize(one as unknown as JsonValue));
  expect(two.bytes.toString()).toBe(`${lines.join('\n')}\n`);
});

it('batch results > have pages of bounded size, however long the messages of denials are', async ({
  setup,
}) => {
  const own = await setup.tenant('wordy');
  const rule = NO_DELETIONS.replace('Deletions are made by hand.', 'x'.repeat(1_800));
  const rules = Object.fromEntries(Array.from({ length: 32 }, (_, n) => [`r${n}`, rule]));
  const { json } = await setup.post('/v1/overlays', overlayBody(rules), own);
  const activation = activationBody([overlayCase('DELETE_RECORD', 'wordy')]);
  const path = `/v1/overlays/${String(json['overlay_id'])}/activate`;
  expect((await setup.post(path, activation, own)).status).toBe(200);
  const deletion = { action: 'DELETE_RECORD', tenant_id: 'wordy' };
  const sent = await setup.post(BATCHES, executeBodies(50, deletion), own);
  await workBatches(setup.registry);

  const indexes: number[] = [];
  let cursor = '';
  do {
    const page = await setup.get(
      `${BATCHES}/${batchIn(sent).batch_id}/results?limit=1000${cursor}`,
      own,
    );
    expect(page.bytes.length).toBeLessThan(3 * 1024 * 1024);
    const { next_cursor, results } = page.json as unknown as BatchResults;
    indexes.push(...results.map(({ index }) => index));
    cursor = next_cursor === null ? '' : `&cursor=${next_cursor}`;
  } while (cursor !== '');
  expect(indexes).toEqual(Array.from({ length: 50 }, (_, index) => index));
});

// Must run last: this test erases the tenant.
it('batch results > list every index, but no item data, after the erasure of the tenant', async ({
  completed,
  results,
  setup: { db, get },
}) => {
  const items = [...executeBodies(2), { intent_id: 'Maria Markworth' }, ...executeBodies(1)];
  const { batchId, results: before } = await completed(items);
  const erase = adminOn(db, { url: db.urlFor('svc_erase') });
  await done(erase('erase', 'tenant', TENANT, '--reason', 'CASE-1', '--confirm', TENANT));
  const after = await results(batchId);
  // Clients compare the number of results with the number of items.
  expect(after.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  for (const [index, result] of after.entries()) {
    const { state, status, proof_id, problem } = batchResultSchema.parse(result);
    expect([state, status, proof_id]).toEqual(['erased', 410, before[index]!.proof_id]);
    expect(problem?.code).toBe('payload_erased');
  }
  const page = await get(`${BATCHES}/${batchId}/results?limit=3`);
  expect(page.json['results']).toHaveLength(3);
});
