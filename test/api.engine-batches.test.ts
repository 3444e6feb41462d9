import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isBatchId } from '#protocol/ids';
import { batchResultSchema, batchSchema, type BatchResult } from '#protocol/schemas/batch';
import { canonicalBytes } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import { setLane } from '#sql/administration';
import { treeSize } from '#sql/log';
import { pendingDepth } from '#sql/settlement';
import {
  BATCHES,
  batchCall,
  batchIn,
  envelope,
  executeBodies,
  LINES,
  resultsOf,
} from './helpers/batches.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  without,
  workBatches,
  type Reply,
  type TestEngine,
} from './helpers/engine.js';
import { openRegistry, type TestRegistry } from './helpers/registry.js';

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

describe('a batch', () => {
  it('is accepted with where it is, and each item gets the answer that it gets alone', async () => {
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

  it('may come as lines, and is the same batch as the array of the same items', async () => {
    const items = executeBodies(3);
    const first = await admitted(`\n${lines(...items)}\r\n\n  \n`, LINES);
    expect(first.results.map(({ state }) => state)).toEqual(['admitted', 'admitted', 'admitted']);
    const again = await send(JSON.stringify(items, null, 2));
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(batchIn(again).batch_id).toBe(first.batchId);
    const otherOrder = await send([...items].reverse());
    expect(batchIn(otherOrder).batch_id).not.toBe(first.batchId);
  });

  it('is one log entry an item, and no more when it is sent again, also at once', async () => {
    const before = await treeSize(registry.engine);
    const items = executeBodies(20);
    const replies = await Promise.all([send(items), send(items), send(items)]);
    // Two of one tenant are taken in at a time: the third is told to come again.
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

  it('counts what is pending, and says which items are', async () => {
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

  it('of nothing but faults is completed at once', async () => {
    const { reply } = await admitted([{}, 1]);
    expect(batchIn(reply)).toMatchObject({
      state: 'completed',
      counts: { total: 2, invalid: 2, pending: 0 },
      rate: 0,
    });
  });
});

describe('one bad item', () => {
  const cases: [string, string, string][] = [
    ['malformed_json', '{"a" 1}', '/a'],
    ['duplicate_key', '{"a":1,"a":2}', '/a'],
    ['lone_surrogate', '{"a":"\\ud800"}', '/a'],
    ['nul_character', '{"a":["\\u0000"]}', '/a/0'],
    ['integer_out_of_range', '{"a":9007199254740993}', '/a'],
    ['too_deep', '['.repeat(33) + ']'.repeat(33), '/0'.repeat(32)],
    ['unsupported_schema_version', '{"schema_version":"svc.other/9.9"}', '/schema_version'],
    ['missing_field', '{}', '/schema_version'],
    ['invalid_field', '"text"', ''],
    ['unknown_field', JSON.stringify({ ...executeBody(), more: 1 }), '/more'],
    ['invalid_field', JSON.stringify(executeBody({ action: 'x' })), '/action'],
    ['missing_field', JSON.stringify(without(envelope(), 'nonce')), '/nonce'],
    ['tenant_body_mismatch', JSON.stringify(executeBody({ tenant_id: 'other' })), '/tenant_id'],
    [
      'parent_not_found',
      JSON.stringify(envelope({ parent_proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' })),
      '/parent_proof_id',
    ],
  ];

  it.each(cases)(
    '(%s: %s) never fails its neighbours, and has its pointer',
    async (code, bad, pointer) => {
      const [first, last] = [JSON.stringify(executeBody()), JSON.stringify(executeBody())];
      for (const [body, headers] of [
        [`[${first},${bad},${last}]`, {}],
        [lines(first, bad, JSON.stringify(executeBody())), LINES],
      ] as const) {
        const { results } = await admitted(body, headers);
        expect(results.map(({ state }) => state)).toEqual(['admitted', 'invalid', 'admitted']);
        expect(problemIn(results[1])).toMatchObject({ code, index: 1, errors: [{ pointer }] });
      }
    },
  );

  it('that is not UTF-8, or longer than a body may be, is set aside like any other', async () => {
    const good = Buffer.from(JSON.stringify(executeBody()));
    const long = Buffer.from(JSON.stringify({ text: 'x'.repeat(40_000), more: '],}{"' }));
    const body = Buffer.concat([
      Buffer.from('['),
      Buffer.from('22ff22', 'hex'),
      Buffer.from(','),
      long,
      Buffer.from(','),
      good,
      Buffer.from(']'),
    ]);
    const { results } = await admitted(body);
    expect(results.map((one) => problemIn(one)['code'] ?? one.state)).toEqual([
      'invalid_utf8',
      'body_too_large',
      'admitted',
    ]);
    expect(results[1]?.status).toBe(413);
    const other = Buffer.from(body);
    other[20] = 0x79;
    expect(batchIn(await send(other)).batch_id).not.toBe(batchIn(await send(body)).batch_id);
  });

  it('is kept with its problem, whoever asks and however often', async () => {
    const { batchId, reply } = await admitted([{ wrong: 1 }, executeBody()]);
    const [first] = await resultsOf(engine, key, batchId);
    expect(problemIn(first)['request_id']).toBe(reply.headers['x-request-id']);
    expect(await resultsOf(engine, key, batchId)).toEqual(await resultsOf(engine, key, batchId));
  });
});

describe('a body that cannot be cut into items', () => {
  it.each([
    ['', 'malformed_json'],
    ['{}', 'invalid_field'],
    ['"x"', 'invalid_field'],
    ['[]', 'empty_batch'],
    [' [ ] ', 'empty_batch'],
    ['[', 'malformed_json'],
    ['[GOOD', 'malformed_json'],
    ['[GOOD,]', 'malformed_json'],
    ['[,GOOD]', 'malformed_json'],
    ['[GOOD]x', 'malformed_json'],
    ['[GOOD][GOOD]', 'malformed_json'],
    ['[GOOD}', 'malformed_json'],
    ['[GOOD,{"a":"]', 'malformed_json'],
  ])('%s is 400, and nothing of it is accepted', async (text, code) => {
    const before = await pendingDepth(registry.engine, 1_000);
    engine.worker.rests = true;
    const body = text.replaceAll('GOOD', JSON.stringify(executeBody()));
    const reply = await send(body);
    expect([reply.status, reply.json['code']]).toEqual([400, code]);
    expect(await pendingDepth(registry.engine, 1_000)).toBe(before);
  });

  it('is one without lines, as lines', async () => {
    const reply = await send(' \n\n', LINES);
    expect([reply.status, reply.json['code']]).toEqual([400, 'empty_batch']);
  });
});

describe('items that are the same', () => {
  it('within a batch are one admission, and the later ones are marked', async () => {
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

  it('as one that was admitted before point to it, settled or not', async () => {
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

  it('that are refused are refused for whoever points to them', async () => {
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

describe('a header of a batch', () => {
  it('that makes it idempotent is enforced', async () => {
    const headers = { 'X-Svc-Idempotency-Key': 'nightly' };
    const items = executeBodies(2);
    const first = batchIn(await send(items, headers)).batch_id;
    expect(batchIn(await send(items, headers)).batch_id).toBe(first);
    const other = await send(executeBodies(1), headers);
    expect([other.status, other.json['code']]).toEqual([422, 'idempotency_conflict']);
    // A lane's keys are its own.
    const single = await engine.call({
      headers: { ...headersFor(key), ...headers },
      body: JSON.stringify(executeBody()),
    });
    expect(single.status).toBe(200);
  });

  it('is looked at before its body, and after its length', async () => {
    const refused = async (body: string, headers: Record<string, string>) => {
      const reply = await send(body, headers);
      return [reply.status, reply.json['code']];
    };
    const wrong = { 'svc-api-version': 'v2' };
    expect(await refused('{', wrong)).toEqual([400, 'unsupported_api_version']);
    expect(await refused('{', { Accept: 'image/png' })).toEqual([406, 'not_acceptable']);
    expect(await refused('{', { ...wrong, 'Content-Type': 'text/plain' })).toEqual([
      415,
      'unsupported_media_type',
    ]);
  });
});

describe('limits', () => {
  const withLimits = async (overrides: object, work: (small: TestEngine) => Promise<void>) => {
    const small = await startEngine(registry, overrides);
    try {
      await work(small);
    } finally {
      await small.close();
    }
  };

  it('of bytes hold while the body is read, whatever its length was said to be', async () => {
    await withLimits({ batchLimit: 1_000 }, async (small) => {
      const body = JSON.stringify(executeBodies(10));
      const told = await small.call(batchCall(key, body));
      expect([told.status, told.json['code']]).toEqual([413, 'body_too_large']);
      const untold = await small.call(batchCall(key, body, { 'Transfer-Encoding': 'chunked' }));
      expect([untold.status, untold.json['code']]).toEqual([413, 'body_too_large']);
    });
  });

  it('of items are what one tenant may have waiting at most', async () => {
    await withLimits({ maxPending: 40 }, async (small) => {
      const over = await small.call(batchCall(key, executeBodies(11)));
      expect([over.status, over.json['code']]).toEqual([413, 'too_many_items']);
      expect((await small.call(batchCall(key, executeBodies(10)))).status).toBe(202);
    });
  });

  it('of what waits refuse a batch that does not fit, whole, and not one that came before', async () => {
    const before = await pendingDepth(registry.engine, 1_000);
    await withLimits({ maxPending: 40 }, async (small) => {
      small.worker.rests = true;
      const first = executeBodies(6);
      const accepted = await small.call(batchCall(key, first));
      expect(accepted.status).toBe(202);
      const headers = { 'X-Svc-Idempotency-Key': 'does-not-fit' };
      const refused = await small.call(batchCall(key, executeBodies(5), headers));
      expect([refused.status, refused.json['code'], refused.headers['retry-after']]).toEqual([
        503,
        'queue_too_deep',
        '2',
      ]);
      expect(await pendingDepth(registry.engine, 1_000)).toBe(before + 6);
      // Nothing of it is left, its key included.
      expect((await small.call(batchCall(key, executeBodies(4), headers))).status).toBe(202);
      expect((await small.call(batchCall(key, first))).headers['idempotent-replayed']).toBe('true');
      // There is room for who sends alone.
      small.worker.rests = false;
      const single = await small.call({
        headers: headersFor(key),
        body: JSON.stringify(executeBody()),
      });
      expect(single.status).toBe(200);
      await workBatches(registry);
    });
  });

  it('of batches at a time are per tenant too, and are given back', async () => {
    await withLimits({ batchesOfOneTenant: 0 }, async (small) => {
      const reply = await small.call(batchCall(key, executeBodies(1)));
      expect([reply.status, reply.json['code'], reply.headers['retry-after']]).toEqual([
        503,
        'too_many_batches',
        '1',
      ]);
    });
    await withLimits({ batchesAtOnce: 1 }, async (small) => {
      for (const body of ['[', JSON.stringify(executeBodies(1)), '{}']) {
        expect((await small.call(batchCall(key, body))).status).not.toBe(503);
      }
    });
  });

  it('of the rate count a batch as one request', async () => {
    await withLimits({ rateLimit: 1 }, async (small) => {
      const reply = await small.call(batchCall(key, executeBodies(5)));
      expect(reply.status).toBe(202);
      expect(reply.headers['ratelimit']).toMatch(/r=0/);
    });
  });
});

describe('results', () => {
  it('come in pages that follow each other, in canonical form', async () => {
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

  it('as lines are each in canonical form, and can be told to be fewer', async () => {
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

  it('take no cursor of other results', async () => {
    const [one, other] = [await admitted(executeBodies(3)), await admitted(executeBodies(3))];
    const page = await read(`${BATCHES}/${one.batchId}/results?limit=1`);
    const path = `${BATCHES}/${other.batchId}/results?cursor=${String(page.json['next_cursor'])}`;
    expect((await read(path)).json['code']).toBe('invalid_query');
  });

  it('are of a batch that the tenant has', async () => {
    for (const id of ['batch_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', 'batch_x', 'x']) {
      for (const path of [`${BATCHES}/${id}`, `${BATCHES}/${id}/results`]) {
        const reply: Reply = await read(path);
        expect([reply.status, reply.json['code']]).toEqual([404, 'batch_not_found']);
      }
    }
  });
});

describe('the list', () => {
  it('has every batch, newest first, in pages', async () => {
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
