import { expect, it } from 'vitest';
import { callAt } from '../../fixtures/public-call.js';
import { START, TestSnapshot } from '../../fixtures/snapshot.js';

it('/readyz > reports the served snapshot, its age and its source', async () => {
  const snapshot = new TestSnapshot();
  snapshot.registry.addProofs(3);
  snapshot.registry.verify();
  await snapshot.publisher({ recentLookupLimit: 2 }).runCycle();
  const server = await snapshot.serve(snapshot.publicServer());
  snapshot.clock.at += 4_321;
  const reply = await callAt(server, '/readyz');
  expect(reply.status).toBe(200);
  expect(reply.headers['cache-control']).toBe('no-store');
  expect(reply.body).toEqual({
    status: 'ready',
    source: 'directory',
    generation: 6,
    tree_size: 6,
    lookup_from: 4,
    issued_at: new Date(START).toISOString(),
    valid_until: new Date(START + 15 * 60_000).toISOString(),
    age_ms: 4_321,
    refusal: null,
  });
  await snapshot.close();
});
