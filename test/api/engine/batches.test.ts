import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import { BATCHES_OF_ONE_TENANT } from '#api/engine/batches/create-batch';
import type { EngineMetrics } from '#api/engine/context';
import { isBatchId } from '#protocol/ids';
import { batchResultSchema, batchSchema, type BatchResult } from '#protocol/schemas/batch';
import type { ListedProof } from '#protocol/schemas/proof-view';
import { pendingDepth } from '#sql/admissions/pending';
import {
  BATCHES,
  batchCall,
  batchIn,
  envelope,
  executeBodies,
  LINES,
} from '../../fixtures/batches.js';
import {
  executeBody,
  headersFor,
  without,
  workBatches,
  type Reply,
} from '../../fixtures/engine.js';
import { holdLock, untilWaiting } from '../../fixtures/hold-lock.js';
import { RawClient } from '../../fixtures/raw-client.js';
import { batchTest } from './batch-setup.js';

const it = batchTest();

const lines = (...items: unknown[]) =>
  items.map((item) => (typeof item === 'string' ? item : JSON.stringify(item))).join('\n');
const statusAndCode = ({ json, status }: Reply) => [status, json['code']];
const problemIn = (result: BatchResult | undefined): Record<string, unknown> =>
  result?.problem ?? {};

describe('POST /v1/batches', () => {
  it('gives each item the same result as a single request', async ({ completed, setup }) => {
    const items = [
      executeBody(),
      executeBody({ action: 'DELETE_AUDIT_LOG' }),
      envelope(),
      executeBody({ action: 'lower case' }),
      envelope({ action: 'DELETE_AUDIT_LOG' }),
    ];
    const { reply, batchId, results } = await completed(items);
    expect(isBatchId(batchId)).toBe(true);
    expect(reply.headers.location).toBe(`${BATCHES}/${batchId}`);
    expect('idempotent-replayed' in reply.headers).toBe(false);
    const { json } = await setup.get(String(reply.headers.location));
    expect(batchSchema.parse(json)).toMatchObject({
      state: 'completed',
      counts: { total: 5, admitted: 2, denied: 2, refused: 0, invalid: 1, pending: 0 },
      replayed: 0,
    });
    for (const [index, result] of results.entries()) {
      expect(batchResultSchema.parse(result).index).toBe(index);
      const path = 'kind' in items[index]! ? '/v1/agent/admissions' : '/v1/intents/execute';
      const single = await setup.post(path, items[index]!);
      expect(result.status).toBe(single.status);
      if (result.receipt !== undefined) expect(result.receipt).toEqual(single.json);
      else {
        const { index: place, ...problem } = problemIn(result);
        expect(place).toBe(index);
        expect(problem['request_id']).toBe(reply.headers['x-request-id']);
        expect(without(problem, 'request_id')).toEqual(without(single.json, 'request_id'));
      }
    }
    const states = ['admitted', 'denied', 'admitted', 'invalid', 'denied'];
    expect(results.map(({ state }) => state)).toEqual(states);
  });

  it('returns the existing batch when the same items arrive in a different format', async ({
    completed,
    send,
  }) => {
    const items = executeBodies(3);
    const first = await completed(`\n${lines(...items)}\r\n\n  \n`, LINES);
    expect(first.results.map(({ state }) => state)).toEqual(['admitted', 'admitted', 'admitted']);
    const again = await send(JSON.stringify(items, null, 2));
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(batchIn(again).batch_id).toBe(first.batchId);
    const otherOrder = await send([...items].reverse());
    expect(batchIn(otherOrder).batch_id).not.toBe(first.batchId);
  });
});

it('duplicate batch items > refer to the first admission, whether pending or decided', async ({
  results,
  send,
  setup,
}) => {
  const [settled, open] = [executeBody(), executeBody()];
  const receipt = await setup.execute(settled);
  setup.engine.worker.isPaused = true;
  const first = batchIn(await send([open])).batch_id;
  const second = batchIn(await send([settled, open, executeBody()]));
  expect(second).toMatchObject({
    state: 'processing',
    counts: { admitted: 1, pending: 2 },
    replayed: 2,
    completed_at: null,
    rate: 0,
  });
  expect((await results(second.batch_id)).map(({ status }) => status)).toEqual([200, 202, 202]);
  await workBatches(setup.registry);
  const found = await results(second.batch_id);
  expect(found[0]).toMatchObject({ replayed: true, receipt: receipt.json });
  const { proofs } = (await setup.get('/v1/proofs?limit=3')).json as { proofs: ListedProof[] };
  const batches = proofs.map(({ batch_id }) => batch_id);
  expect(batches).toEqual([second.batch_id, first, null]);
  expect(found[1]?.proof_id).toBe((await results(first))[0]?.proof_id);
  const { json } = await setup.get(`${BATCHES}/${second.batch_id}`);
  expect(json).toMatchObject({ state: 'completed', counts: { admitted: 3, pending: 0 } });
  expect(json['completed_at']).not.toBeNull();
  expect(json['rate']).toBeGreaterThan(0);
});

describe('invalid batch item', () => {
  const parent_proof_id = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
  const cases: [code: string, body: string, pointer: string][] = [
    ['malformed_json', '{"a" 1}', '/a'],
    ['duplicate_key', '{"a":1,"a":2}', '/a'],
    ['too_deep', '['.repeat(33) + ']'.repeat(33), '/0'.repeat(32)],
    ['unsupported_schema_version', '{"schema_version":"svc.other/9.9"}', '/schema_version'],
    ['missing_field', '{}', '/schema_version'],
    ['invalid_field', '"text"', ''],
    ['invalid_field', JSON.stringify(executeBody({ intent_id: null })), '/intent_id'],
    ['unknown_field', JSON.stringify({ ...executeBody(), more: 1 }), '/more'],
    ['missing_field', JSON.stringify(without(envelope(), 'nonce')), '/nonce'],
    ['tenant_body_mismatch', JSON.stringify(executeBody({ tenant_id: 'other' })), '/tenant_id'],
    ['parent_not_found', JSON.stringify(envelope({ parent_proof_id })), '/parent_proof_id'],
    ['invalid_fact', JSON.stringify(envelope({ facts: { amount: 1 } })), '/facts/amount'],
  ];

  it('gets a problem with a pointer, and does not affect other items', async ({ completed }) => {
    const items = cases.flatMap(([, bad]) => [JSON.stringify(executeBody()), bad]);
    for (const [body, headers] of [
      [`[${items.join()}]`, {}],
      [lines(...items, JSON.stringify(executeBody())), LINES],
    ] as const) {
      const { results } = await completed(body, headers);
      for (const [at, [code, , pointer]] of cases.entries()) {
        const index = 2 * at + 1;
        expect(results[index - 1]?.state).toBe('admitted');
        expect(results[index]?.state).toBe('invalid');
        const problem = problemIn(results[index]);
        expect(problem).toMatchObject({ code, index, errors: [{ pointer }] });
        // No message of zod reaches a caller.
        expect(JSON.stringify(problem['errors'])).not.toMatch(/Invalid|received|Unrecognized|Too /);
      }
    }
  });

  it('is rejected when it is not UTF-8 or exceeds the item size limit', async ({
    completed,
    send,
  }) => {
    const good = JSON.stringify(executeBody());
    const long = JSON.stringify({ text: 'x'.repeat(70_000), more: '],}{"' });
    const body = Buffer.concat([
      Buffer.from('["'),
      Buffer.of(0xff),
      Buffer.from(`",${long},${good}]`),
    ]);
    const { results } = await completed(body);
    expect(results.map((one) => problemIn(one)['code'] ?? one.state)).toEqual([
      'invalid_utf8',
      'body_too_large',
      'admitted',
    ]);
    expect(results[1]?.status).toBe(413);
    // The items hash covers the bytes of an item that is too long.
    const other = Buffer.from(body);
    other[20] = 0x79;
    expect(batchIn(await send(other)).batch_id).not.toBe(batchIn(await send(body)).batch_id);
  });
});

it('batch body that cannot be split into items > gets 400, and no item is accepted', async ({
  send,
  setup,
}) => {
  const { engine, registry } = setup;
  const before = await pendingDepth(registry.engine, 1_000);
  engine.worker.isPaused = true;
  for (const [text, code, headers] of [
    ['', 'malformed_json'],
    ['{}', 'invalid_field'],
    [' [ ] ', 'empty_batch'],
    [' \n\n', 'empty_batch', LINES],
    ['[GOOD', 'malformed_json'],
    ['[GOOD,]', 'malformed_json'],
    ['[,GOOD]', 'malformed_json'],
    ['[GOOD]x', 'malformed_json'],
    ['[GOOD}', 'malformed_json'],
    ['[GOOD,{"a":"]', 'malformed_json'],
  ] as const) {
    const reply = await send(text.replaceAll('GOOD', JSON.stringify(executeBody())), headers);
    expect([text, ...statusAndCode(reply)]).toEqual([text, 400, code]);
  }
  expect(await pendingDepth(registry.engine, 1_000)).toBe(before);
});

describe('batch limits', () => {
  it('reject a body that exceeds the byte limit during streaming', async ({ setup }) => {
    await setup.withEngine({ batchLimit: 1_000 }, async ({ call }) => {
      const chunked = { 'Transfer-Encoding': 'chunked' };
      const reply = await call(batchCall(setup.key, executeBodies(10), chunked));
      expect(statusAndCode(reply)).toEqual([413, 'body_too_large']);
    });
  });

  it('do not count uploads whose clients disconnected during authentication', async ({
    send,
    setup: { db, engine, key },
  }) => {
    const headers = Object.entries(headersFor(key)).map(([name, value]) => `${name}: ${value}`);
    const head = [`POST ${BATCHES} HTTP/1.1`, 'Host: x', ...headers, 'Content-Length: 10', '', '['];
    const release = await holdLock(db.sql, 'lock table svc.api_key in access exclusive mode');
    for (let count = 1; count <= BATCHES_OF_ONE_TENANT; count += 1) {
      const client = await RawClient.connect({ port: Number(new URL(engine.url).port) });
      client.say(head.join('\r\n'));
      await untilWaiting(db.sql, count);
      client.destroy();
    }
    // The server notices a disconnect within milliseconds.
    await sleep(200);
    await release();
    expect((await send(executeBodies(1))).status).toBe(202);
  });

  it('reject a batch with more items than one tenant may queue', async ({
    setup: { key, withEngine },
  }) => {
    await withEngine({ maxQueuedAdmissions: 40 }, async ({ call }) => {
      const over = await call(batchCall(key, executeBodies(11)));
      expect(statusAndCode(over)).toEqual([413, 'too_many_items']);
      expect((await call(batchCall(key, executeBodies(10)))).status).toBe(202);
    });
  });

  it('reject a new batch, but not a repeated one, when the queue is full', async ({ setup }) => {
    const { key, registry } = setup;
    const before = await pendingDepth(registry.engine, 1_000);
    await setup.withEngine({ maxQueuedAdmissions: 40 }, async ({ call, worker }) => {
      worker.isPaused = true;
      const first = executeBodies(6);
      expect((await call(batchCall(key, first))).status).toBe(202);
      const headers = { 'X-Svc-Idempotency-Key': 'does-not-fit' };
      const rejected = await call(batchCall(key, executeBodies(5), headers));
      expect(statusAndCode(rejected)).toEqual([503, 'queue_too_deep']);
      expect(rejected.headers['retry-after']).toBe('2');
      expect(await pendingDepth(registry.engine, 1_000)).toBe(before + 6);
      // The rejection left no rows, not even the idempotency key.
      expect((await call(batchCall(key, executeBodies(4), headers))).status).toBe(202);
      expect((await call(batchCall(key, first))).headers['idempotent-replayed']).toBe('true');
      // Single admissions still fit into the queue.
      worker.isPaused = false;
      const single = { headers: headersFor(key), body: JSON.stringify(executeBody()) };
      expect((await call(single)).status).toBe(200);
    });
  });
});

it('metric of admissions > counts a single admission and a batch that are rejected before their bodies are read', async ({
  setup: { key, withEngine },
}) => {
  const counted: unknown[][] = [];
  const metrics: EngineMetrics = {
    answered: () => undefined,
    admissions: (...one) => void counted.push(one),
  };
  await withEngine({ admissionsPaused: true, metrics }, async ({ call }) => {
    const single = { headers: headersFor(key), body: JSON.stringify(executeBody()) };
    for (const sent of [single, batchCall(key, executeBodies(1))]) {
      expect((await call(sent)).status).toBe(423);
    }
  });
  expect(counted).toEqual([
    [1, 'refused', 1],
    ['batch', 'refused', 1],
  ]);
});
