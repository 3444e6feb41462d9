import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpSource } from '#api/public/snapshot/http-source';
import { send, type Reply } from '../../fixtures/send.js';
import { START, TestSnapshot } from '../../fixtures/snapshot.js';

let snapshot: TestSnapshot;
beforeEach(async () => {
  snapshot = new TestSnapshot();
  snapshot.registry.addProofs(3);
  snapshot.registry.verify();
  await snapshot.publisher({ recentLookupLimit: 2 }).runCycle();
});
afterEach(() => snapshot.close());

const ask = (url: string, path = '/readyz'): Promise<Reply> => send(url, { method: 'GET', path });

describe('/readyz', () => {
  it('reports the served snapshot, its age and its source', async () => {
    const { url } = await snapshot.serve(snapshot.publicServer());
    snapshot.clock.at += 4_321;
    const reply = await ask(url);
    expect(reply.status).toBe(200);
    expect(reply.headers['cache-control']).toBe('no-store');
    expect(reply.json).toEqual({
      status: 'ready',
      source: expect.stringMatching(/^(directory|http)$/) as string,
      generation: Math.floor(START / 1000),
      tree_size: 4,
      proofs: 3,
      window: 2,
      issued_at: new Date(START).toISOString(),
      valid_until: new Date(START + 15 * 60_000).toISOString(),
      age_ms: 4_321,
      refusal: null,
    });
  });

  it('is 503 without a snapshot while /healthz is 200', async () => {
    const nowhere = httpSource('http://127.0.0.1:1');
    const { url } = await snapshot.serve(snapshot.publicServer({ source: nowhere }));
    const reply = await ask(url);
    expect(reply.status).toBe(503);
    expect(reply.headers['retry-after']).toBe('2');
    expect(reply.json).toMatchObject({ status: 'no snapshot', source: 'http' });
    expect(reply.json['refusal']).toEqual(expect.any(String));
    expect((await ask(url, '/healthz')).json).toEqual({ status: 'ok' });
  });
});
