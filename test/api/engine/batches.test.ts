import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isBatchId } from '#protocol/ids';
import { batchResultSchema, batchSchema, type BatchResult } from '#protocol/schemas/batch';
import { canonicalBytes } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import { setLane } from '#sql/tenants/administration';
import { treeSize } from '#sql/log/log';
import {
  BATCHES,
  batchCall,
  batchIn,
  envelope,
  executeBodies,
  LINES,
  resultsOf,
} from '../../fixtures/batches.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  without,
  workBatches,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry, { rateLimit: 100_000 });
  key = await issueKey(registry);
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});
afterEach(async () => {
  engine.worker.rests = false;
  await workBatches(registry);
});

const send = (body: unknown, headers: Record<string, string> = {}) =>
  engine.call(batchCall(key, body, headers));
const read = (path: string, headers: Record<string, string> = {}) =>
  engine.call({ method: 'GET', path, headers: { ...headersFor(key), ...headers } });
const alone = (path: string, body: unknown) =>
  engine.call({
    path,
    headers: headersFor(key),
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
const lines = (...items: unknown[]) =>
  items.map((item) => (typeof item === 'string' ? item : JSON.stringify(item))).join('\n');

/** Sends and settles, and has the results. */
async function admitted(body: unknown, headers: Record<string, string> = {}) {
  const reply = await send(body, headers);
  expect(reply.status, reply.bytes.toString()).toBe(202);
  const { batch_id: batchId } = batchIn(reply);
  await workBatches(registry);
  return { reply, batchId, results: await resultsOf(engine, key, batchId) };
}

const problemIn = (result: BatchResult | undefined): Record<string, unknown> =>
  result?.problem ?? {};

describe('POST /v1/batches', () => {
  it('gives each item the result of a single request', async () => {
    const items = [
      executeBody(),
      executeBody({ action: 'DELETE_AUDIT_LOG' }),
      envelope(),
      executeBody({ action: 'lower case' }),
      envelope({ action: 'DELETE_AUDIT_LOG' }),
    ];
    const { reply, batchId, results } = await admitted(items);
    expect(isBatchId(batchId)).toBe(true);
    expect(reply.headers.location).toBe(`${BATCHES}/${batchId}`);
    expect('idempotent-replayed' in reply.headers).toBe(false);
    const { json } = await read(String(reply.headers.location));
    expect(batchSchema.parse(json)).toMatchObject({
      state: 'completed',
      counts: { total: 5, admitted: 2, denied: 2, refused: 0, invalid: 1, pending: 0 },
      replayed: 0,
    });
    const paths = [
      'intents/execute',
      'intents/execute',
      'agent/admissions',
      'intents/execute',
      'agent/admissions',
    ];
    for (const [index, result] of results.entries()) {
      expect(batchResultSchema.parse(result).index).toBe(index);
      const single = await alone(`/v1/${paths[index] ?? ''}`, items[index]);
      expect(result.status).toBe(single.status);
      if (result.receipt !== undefined) expect(result.receipt).toEqual(single.json);
      else {
        const said = without(problemIn(result), 'index', 'request_id');
        expect(said).toEqual(without(single.json, 'request_id'));
        expect(problemIn(result)['index']).toBe(index);
      }
    }
    expect(results.map(({ state }) => state)).toEqual([
      'admitted',
      'denied',
      'admitted',
      'invalid',
      'denied',
    ]);
  });

  it('returns the same batch for lines and for an array', async () => {
    const items = executeBodies(3);
    const first = await admitted(`\n${lines(...items)}\r\n\n  \n`, LINES);
    expect(first.results.map(({ state }) => state)).toEqual(['admitted', 'admitted', 'admitted']);
    const again = await send(JSON.stringify(items, null, 2));
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(batchIn(again).batch_id).toBe(first.batchId);
    const otherOrder = await send([...items].reverse());
    expect(batchIn(otherOrder).batch_id).not.toBe(first.batchId);
  });

  it('logs each item once when sent again or concurrently', async () => {
    const before = await treeSize(registry.engine);
    const items = executeBodies(20);
    const replies = await Promise.all([send(items), send(items), send(items)]);
    // Two concurrent batches per tenant: the third gets 503 and is retried.
    const accepted = replies.filter(({ status }) => status === 202);
    expect(new Set(accepted.map((reply) => batchIn(reply).batch_id)).size).toBe(1);
    expect(accepted.filter(({ headers }) => 'idempotent-replayed' in headers)).toHaveLength(
      accepted.length - 1,
    );
    await workBatches(registry);
    const again = await admitted(items);
    expect(again.reply.headers['idempotent-replayed']).toBe('true');
    expect(await treeSize(registry.engine)).toBe(before + 20);
  });

  it('counts and lists pending items', async () => {
    engine.worker.rests = true;
    const reply = await send([...executeBodies(2), { schema_version: 'x' }]);
    const { batch_id: batchId } = batchIn(reply);
    expect(batchIn(reply)).toMatchObject({
      state: 'processing',
      counts: { total: 3, pending: 2, invalid: 1 },
      completed_at: null,
      rate: 0,
    });
    const pending = await resultsOf(engine, key, batchId);
    expect(pending.map(({ state, status }) => [state, status])).toEqual([
      ['pending', 202],
      ['pending', 202],
      ['invalid', 400],
    ]);
    expect(pending[0]?.proof_id).toBeDefined();
    await workBatches(registry);
    const { json } = await read(`${BATCHES}/${batchId}`);
    expect(json).toMatchObject({ state: 'completed', counts: { admitted: 2, pending: 0 } });
    expect(json['completed_at']).not.toBeNull();
    expect(json['rate']).toBeGreaterThan(0);
  });

  it('completes at once when all items are invalid', async () => {
    const { reply } = await admitted([{}, 1]);
    expect(batchIn(reply)).toMatchObject({
      state: 'completed',
      counts: { total: 2, invalid: 2, pending: 0 },
      rate: 0,
    });
  });
});

describe('duplicate batch items', () => {
  it('share one admission and mark later items as replayed', async () => {
    const twice = executeBody();
    const { results, batchId } = await admitted([
      twice,
      executeBody(),
      twice,
      JSON.parse(JSON.stringify(twice)),
    ]);
    expect(results.map(({ replayed }) => replayed)).toEqual([undefined, undefined, true, true]);
    expect(
      new Set([results[0], results[2], results[3]].map((one) => JSON.stringify(one?.receipt))).size,
    ).toBe(1);
    expect((await read(`${BATCHES}/${batchId}`)).json).toMatchObject({
      counts: { total: 4, admitted: 4 },
      replayed: 2,
    });
  });

  it('refer to an earlier admission, pending or decided', async () => {
    const [settled, open] = [executeBody(), executeBody()];
    const receipt = await alone('/v1/intents/execute', settled);
    engine.worker.rests = true;
    const first = batchIn(await send([open])).batch_id;
    const second = batchIn(await send([settled, open, executeBody()]));
    expect(second).toMatchObject({ counts: { admitted: 1, pending: 2 }, replayed: 2 });
    await workBatches(registry);
    const results = await resultsOf(engine, key, second.batch_id);
    expect(results[0]).toMatchObject({ replayed: true, receipt: receipt.json });
    expect(results[1]?.proof_id).toBe((await resultsOf(engine, key, first))[0]?.proof_id);
    expect((await read(`${BATCHES}/${second.batch_id}`)).json).toMatchObject({
      state: 'completed',
      counts: { admitted: 3, pending: 0 },
    });
  });

  it('share a rejection', async () => {
    engine.worker.rests = true;
    const shared = executeBody();
    const [first, second] = [await send([shared]), await send([executeBody(), shared])].map(
      (reply) => batchIn(reply).batch_id,
    );
    await setLane(registry.admin, 'sandbox', false);
    await workBatches(registry);
    await setLane(registry.admin, 'sandbox', true);
    for (const id of [first, second]) {
      const results = await resultsOf(engine, key, id!);
      for (const one of results) {
        expect(one).toMatchObject({
          state: 'refused',
          status: 423,
          problem: { code: 'lane_locked' },
        });
      }
      const { json } = await read(`${BATCHES}/${id!}`);
      expect(json).toMatchObject({ state: 'completed', counts: { refused: results.length } });
    }
  });
});

describe('batch results', () => {
  it('are consecutive pages of canonical JSON', async () => {
    const items = [...executeBodies(7), {}, executeBody({ action: 'DELETE_AUDIT_LOG' })];
    const { batchId, results } = await admitted(items);
    const found: BatchResult[] = [];
    let cursor = '';
    let pages = 0;
    do {
      const reply = await read(
        `${BATCHES}/${batchId}/results?limit=4${cursor && `&cursor=${cursor}`}`,
      );
      expect(reply.status).toBe(200);
      expect(reply.bytes).toEqual(Buffer.from(canonicalBytes(reply.json as JsonValue)));
      found.push(...(reply.json['results'] as BatchResult[]));
      cursor = (reply.json['next_cursor'] as string | null) ?? '';
      pages += 1;
    } while (cursor !== '');
    expect(pages).toBe(3);
    expect(found).toEqual(results);
  });

  it('are canonical lines and respect limit', async () => {
    const { batchId } = await admitted([...executeBodies(3), {}]);
    const reply = await read(`${BATCHES}/${batchId}/results?limit=4`, {
      Accept: LINES['Content-Type'],
    });
    expect(reply.headers['content-type']).toBe(LINES['Content-Type']);
    for (const line of reply.bytes.toString().trimEnd().split('\n')) {
      expect(line).toBe(Buffer.from(canonicalBytes(JSON.parse(line) as JsonValue)).toString());
    }
    const two = await read(`${BATCHES}/${batchId}/results?limit=2`, {
      Accept: LINES['Content-Type'],
    });
    expect(two.bytes.toString().split('\n')).toHaveLength(3);
  });

  it('reject a cursor of another batch', async () => {
    const [one, other] = [await admitted(executeBodies(3)), await admitted(executeBodies(3))];
    const page = await read(`${BATCHES}/${one.batchId}/results?limit=1`);
    const path = `${BATCHES}/${other.batchId}/results?cursor=${String(page.json['next_cursor'])}`;
    expect((await read(path)).json['code']).toBe('invalid_query');
  });

  it('are 404 for unknown batches', async () => {
    for (const id of ['batch_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', 'batch_x', 'x']) {
      for (const path of [`${BATCHES}/${id}`, `${BATCHES}/${id}/results`]) {
        const reply: Reply = await read(path);
        expect([reply.status, reply.json['code']]).toEqual([404, 'batch_not_found']);
      }
    }
  });
});

describe('GET /v1/batches', () => {
  it('lists all batches in pages, newest first', async () => {
    const made: string[] = [];
    for (let i = 0; i < 3; i += 1) made.unshift((await admitted(executeBodies(1))).batchId);
    const first = await read(`${BATCHES}?limit=2`);
    const listed = first.json['batches'] as { batch_id: string }[];
    expect(listed.map((one) => one.batch_id)).toEqual(made.slice(0, 2));
    expect(listed[0]).toEqual((await read(`${BATCHES}/${made[0]!}`)).json);
    const second = await read(`${BATCHES}?limit=2&cursor=${String(first.json['next_cursor'])}`);
    expect((second.json['batches'] as { batch_id: string }[])[0]?.batch_id).toBe(made[2]);
  });
});
