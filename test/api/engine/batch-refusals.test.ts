import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type BatchResult } from '#protocol/schemas/batch';
import { pendingDepth } from '#sql/admissions/outcomes';
import {
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

describe('invalid batch item', () => {
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
    '(%s: %s) gets a problem with a pointer and does not affect other items',
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

  it('is rejected when it is not UTF-8 or exceeds the body limit', async () => {
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

  it('keeps the same problem in repeated results', async () => {
    const { batchId, reply } = await admitted([{ wrong: 1 }, executeBody()]);
    const [first] = await resultsOf(engine, key, batchId);
    expect(problemIn(first)['request_id']).toBe(reply.headers['x-request-id']);
    expect(await resultsOf(engine, key, batchId)).toEqual(await resultsOf(engine, key, batchId));
  });
});

describe('unsplittable batch body', () => {
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

  it('gets 400 when it has no lines', async () => {
    const reply = await send(' \n\n', LINES);
    expect([reply.status, reply.json['code']]).toEqual([400, 'empty_batch']);
  });
});

describe('batch headers', () => {
  it('enforce the idempotency key', async () => {
    const headers = { 'X-Svc-Idempotency-Key': 'nightly' };
    const items = executeBodies(2);
    const first = batchIn(await send(items, headers)).batch_id;
    expect(batchIn(await send(items, headers)).batch_id).toBe(first);
    const other = await send(executeBodies(1), headers);
    expect([other.status, other.json['code']]).toEqual([422, 'idempotency_conflict']);
    // Idempotency keys are scoped by request type.
    const single = await engine.call({
      headers: { ...headersFor(key), ...headers },
      body: JSON.stringify(executeBody()),
    });
    expect(single.status).toBe(200);
  });

  it('are checked after the body length and before the body', async () => {
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

describe('batch limits', () => {
  const withLimits = async (overrides: object, work: (small: TestEngine) => Promise<void>) => {
    const small = await startEngine(registry, overrides);
    try {
      await work(small);
    } finally {
      await small.close();
    }
  };

  it('reject a body that exceeds the byte limit during streaming', async () => {
    await withLimits({ batchLimit: 1_000 }, async (small) => {
      const body = JSON.stringify(executeBodies(10));
      const told = await small.call(batchCall(key, body));
      expect([told.status, told.json['code']]).toEqual([413, 'body_too_large']);
      const untold = await small.call(batchCall(key, body, { 'Transfer-Encoding': 'chunked' }));
      expect([untold.status, untold.json['code']]).toEqual([413, 'body_too_large']);
    });
  });

  it('reject more items than one tenant may queue', async () => {
    await withLimits({ maxQueuedAdmissions: 40 }, async (small) => {
      const over = await small.call(batchCall(key, executeBodies(11)));
      expect([over.status, over.json['code']]).toEqual([413, 'too_many_items']);
      expect((await small.call(batchCall(key, executeBodies(10)))).status).toBe(202);
    });
  });

  it('reject a batch that exceeds the queue limit, but not a repeated one', async () => {
    const before = await pendingDepth(registry.engine, 1_000);
    await withLimits({ maxQueuedAdmissions: 40 }, async (small) => {
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
      // The rejection left no rows, not even the idempotency key.
      expect((await small.call(batchCall(key, executeBodies(4), headers))).status).toBe(202);
      expect((await small.call(batchCall(key, first))).headers['idempotent-replayed']).toBe('true');
      // Single admissions still fit.
      small.worker.rests = false;
      const single = await small.call({
        headers: headersFor(key),
        body: JSON.stringify(executeBody()),
      });
      expect(single.status).toBe(200);
      await workBatches(registry);
    });
  });

  it('bound concurrent batches per tenant and release their slots', async () => {
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

  it('count a batch as one request of the rate limit', async () => {
    await withLimits({ rateLimit: 1 }, async (small) => {
      const reply = await small.call(batchCall(key, executeBodies(5)));
      expect(reply.status).toBe(202);
      expect(reply.headers['ratelimit']).toMatch(/r=0/);
    });
  });
});
