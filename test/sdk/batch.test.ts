import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { treeSize } from '#sql/log/log';
import { chunksOf } from '#sdk/engine/batch-chunks';
import { inOrder } from '#sdk/engine/in-order';
import {
  admitBatchHttp,
  agentEnvelope,
  canonicalHash,
  executeRequest,
  followBatchHttp,
  type BatchItem,
  type BatchItemResult,
  type BatchProgress,
  type BatchSettings,
  type EngineOptions,
  type ExecuteRequest,
  type JsonValue,
} from '#sdk/index';
import type { Batch } from '#protocol/schemas/batch';
import type { Fault } from '../fixtures/broken-network.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

let world: SdkWorld;
beforeAll(async () => {
  world = await openSdkWorld();
});
afterEach(() => {
  world.network.seen.length = 0;
  world.network.faults.length = 0;
  world.engine.worker.rests = false;
});
afterAll(() => world.close());

const execution = (action?: string): ExecuteRequest =>
  executeRequest('acme', intent(action === undefined ? {} : { action }));
const executions = (count: number): BatchItem[] => Array.from({ length: count }, () => execution());

async function admitted(
  items: Iterable<BatchItem> | AsyncIterable<BatchItem>,
  settings?: BatchSettings,
  options: EngineOptions = world.shaky,
): Promise<BatchItemResult[]> {
  const results: BatchItemResult[] = [];
  for await (const result of admitBatchHttp(options, items, settings)) results.push(result);
  return results;
}

const through: Fault = { kind: 'late', ms: 0 };
const hashOfLine = (line: string): string => canonicalHash(JSON.parse(line) as JsonValue);
const posts = () => world.network.seen.filter(({ method }) => method === 'POST');

describe('admitBatchHttp', () => {
  it('says what became of each item, in the order of the input', async () => {
    const kept = execution();
    const items: BatchItem[] = [
      kept,
      agentEnvelope('acme', { kind: 'admission', agent: { id: 'a' }, action: 'SEND_REPORT' }),
      execution('DELETE_AUDIT_LOG'),
      { ...kept, action: 'not upper case' },
      kept,
    ];
    const results = await admitted(items);
    expect(results.map(({ index, state }) => [index, state])).toEqual([
      [0, 'admitted'],
      [1, 'admitted'],
      [2, 'denied'],
      [3, 'invalid'],
      [4, 'admitted'],
    ]);
    const [first, , denied, invalid, again] = results;
    expect(first).toMatchObject({ receipt: { request_hash: canonicalHash({ ...kept }) } });
    expect(again).toMatchObject({ proof_id: first?.proof_id, replayed: true });
    expect(denied).toMatchObject({ denial: { receipt: { status: 'DENIED' } } });
    expect(invalid).toMatchObject({ problem: { code: 'invalid_field' } });
    expect(invalid?.proof_id).toBeUndefined();
  });

  it('cuts what is longer than a batch, and keeps count over all of it', async () => {
    const heard: BatchProgress[] = [];
    async function* source(): AsyncGenerator<BatchItem> {
      for (const item of executions(23)) {
        await Promise.resolve();
        yield item;
      }
    }
    const results = await admitted(source(), {
      maxItems: 5,
      onProgress: (progress) => heard.push(progress),
    });
    expect(results.map(({ index }) => index)).toEqual(Array.from({ length: 23 }, (_, at) => at));
    expect(posts()).toHaveLength(5);
    const [post] = posts();
    expect(post?.headers['content-type']).toBe('application/x-ndjson');
    const hashes = (post?.body ?? '').trimEnd().split('\n').map(hashOfLine);
    expect(post?.headers['x-svc-idempotency-key']).toBe(canonicalHash(hashes));
    expect(new Set(results.map(({ batch_id }) => batch_id)).size).toBe(5);
    const done = { accepted: 23, admitted: 23, denied: 0, refused: 0, invalid: 0, pending: 0 };
    expect(heard.at(-1)).toEqual(done);
    heard.forEach((one, at) =>
      expect(one.accepted).toBeGreaterThanOrEqual(heard[at - 1]?.accepted ?? 0),
    );
  });

  it('reads the results of a large batch in pages', async () => {
    const results = await admitted(executions(2_300));
    expect(results).toHaveLength(2_300);
    expect(new Set(results.map(({ proof_id }) => proof_id)).size).toBe(2_300);
    expect(world.network.seen.filter(({ path }) => path.includes('/results'))).toHaveLength(3);
  });

  it('gives the first receipts to the same input again, however often its answers get lost', async () => {
    const items = executions(12);
    const before = await treeSize(world.db.sql);
    world.network.faults.push(
      { kind: 'unanswered' },
      { kind: 'lost' },
      { kind: 'cut' },
      { kind: 'answer', status: 503 },
    );
    const settings = { maxItems: 4 };
    const first = await admitted(items, settings);
    const again = await admitted(items, settings);
    expect(again.map(({ proof_id }) => proof_id)).toEqual(first.map(({ proof_id }) => proof_id));
    expect(await treeSize(world.db.sql)).toBe(before + 12);
  });

  it('takes no more of the input than it has use for', async () => {
    let taken = 0;
    function* endless(): Generator<BatchItem> {
      for (;;) {
        taken += 1;
        yield execution();
      }
    }
    for await (const { index } of admitBatchHttp(world.shaky, endless(), { maxItems: 3 })) {
      if (index === 4) break;
    }
    expect(taken).toBeLessThan(20);
  });

  it('has nothing to say of no items', async () => {
    expect(await admitted([])).toEqual([]);
    expect(world.network.seen).toEqual([]);
  });

  it('ends with the error of a batch that cannot be sent', async () => {
    const options = { ...world.shaky, apiKey: 'svc_sk_none' };
    await sdkError(admitted(executions(3), {}, options), 'unauthenticated');
    for (const settings of [{ maxItems: 10_001 }, { maxBytes: 0 }, { inFlight: 1.5 }]) {
      await sdkError(admitted(executions(1), settings), 'invalid_input');
    }
    const error = await sdkError(admitted(executions(3), { maxBytes: 40 }), 'invalid_input');
    expect(error.pointer).toBe('/0');
  });

  it('ends with the error of its source, which stays as it is', async () => {
    const broken = new Error('the file ended');
    function* source(): Generator<BatchItem> {
      yield execution();
      throw broken;
    }
    await expect(admitted(source())).rejects.toBe(broken);
  });

  it('leaves nothing under way behind', async () => {
    world.engine.worker.rests = true;
    function* source(): Generator<BatchItem> {
      yield execution();
      yield execution();
      throw new Error('the file ended');
    }
    await expect(admitted(source(), { maxItems: 1 })).rejects.toThrow('the file ended');
    await new Promise((resolve) => setTimeout(resolve, 300));
    const asked = world.network.seen.length;
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(world.network.seen.length).toBe(asked);
    world.engine.worker.rests = false;
    await world.engine.worker.work();
  });

  it('is aborted while it follows', async () => {
    world.engine.worker.rests = true;
    const stopping = new AbortController();
    const call = admitted(executions(2), {}, { ...world.shaky, signal: stopping.signal });
    call.catch(() => undefined);
    await expect.poll(() => world.network.seen.length).toBeGreaterThan(2);
    stopping.abort();
    await sdkError(call, 'aborted');
  });

  it('gives up on a batch that stands still, and not on one that goes on', async () => {
    const { worker } = world.engine;
    worker.rests = true;
    const options = { ...world.shaky, timeoutMs: 1_500 };
    await sdkError(admitted(executions(2), {}, options), 'timeout');
    worker.rests = false;
    await worker.work();
    const at = (pending: number): Fault => ({
      kind: 'changed',
      ms: 350,
      change: (body) => {
        const batch = JSON.parse(body) as Batch;
        const counts = { ...batch.counts, admitted: 5 - pending, pending };
        return JSON.stringify({ ...batch, counts, state: 'processing', completed_at: null });
      },
    });
    // Longer than the call may take, and each of them much shorter.
    world.network.faults.push(through, at(5), at(4), at(3), at(2), at(1));
    expect(await admitted(executions(5), {}, options)).toHaveLength(5);
  });

  it('is given up when another number of items was accepted than were sent', async () => {
    world.network.faults.push({
      kind: 'changed',
      change: (body) => {
        const batch = JSON.parse(body) as Batch;
        const counts = { ...batch.counts, total: 3, invalid: 1 };
        return JSON.stringify({ ...batch, counts });
      },
    });
    await sdkError(admitted(executions(2)), 'unexpected_response');
  });
});

describe('results that are not those of the batch', () => {
  const cases: [string, (body: string) => string][] = [
    [
      'a denial that says admitted',
      (body) => body.replace('"state":"denied"', '"state":"admitted"'),
    ],
    ['another order', (body) => body.replace('"index":0', '"index":1')],
    ['a receipt of another item', (body) => swapReceipts(body)],
    [
      'an item that is pending still',
      (body) => body.replace('"state":"denied"', '"state":"pending"'),
    ],
    [
      'too few',
      (body) => {
        const page = JSON.parse(body) as { results: unknown[] };
        return JSON.stringify({ ...page, results: page.results.slice(0, 2) });
      },
    ],
  ];
  it.each(cases)('are refused: %s', async (_what, change) => {
    const items = [execution(), execution('DELETE_AUDIT_LOG'), execution()];
    const done = await admitted(items);
    const batchId = done[0]?.batch_id ?? '';
    // The same items again are the same batch, which is completed: one POST, one GET, one page.
    world.network.faults.push(through, through, { kind: 'changed', change });
    const again = admitted(items);
    const error = await sdkError(again, 'unexpected_response');
    expect(error.message).toContain('results');
    expect(await followBatchHttp(world.options, { batch_id: batchId })).toHaveLength(3);
  });
});

function swapReceipts(body: string): string {
  const page = JSON.parse(body) as { results: { receipt?: unknown; proof_id?: unknown }[] };
  const [first, , third] = page.results;
  if (first === undefined || third === undefined) throw new Error('there are not three');
  [first.receipt, third.receipt] = [third.receipt, first.receipt];
  [first.proof_id, third.proof_id] = [third.proof_id, first.proof_id];
  return JSON.stringify(page);
}

describe('followBatchHttp', () => {
  it('reads what became of a batch, and refuses what is no id', async () => {
    const [one] = await admitted(executions(2));
    const results = await followBatchHttp(world.options, { batch_id: one?.batch_id ?? '' });
    expect(results[0]).toEqual(one);
    await sdkError(followBatchHttp(world.options, { batch_id: 'batch_1' }), 'invalid_input');
    const unknown = { batch_id: 'batch_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' };
    await sdkError(followBatchHttp(world.options, unknown), 'not_found');
  });
});

describe('chunksOf', () => {
  const all = async (items: object[], limits: { items: number; bytes: number }) => {
    const chunks = [];
    for await (const chunk of chunksOf(items, limits)) chunks.push(chunk);
    return chunks;
  };

  it('keeps to both limits, and loses nothing', async () => {
    const items = Array.from({ length: 40 }, (_, at) => ({ n: at, pad: 'é'.repeat(at % 7) }));
    for (const limits of [
      { items: 3, bytes: 1e6 },
      { items: 1e6, bytes: 70 },
      { items: 4, bytes: 90 },
    ]) {
      const chunks = await all(items, limits);
      expect(chunks.every(({ hashes }) => hashes.length <= limits.items)).toBe(true);
      expect(chunks.every(({ body }) => body.length <= limits.bytes)).toBe(true);
      const lines = chunks.flatMap(({ body }) =>
        Buffer.from(body).toString().trimEnd().split('\n'),
      );
      expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(items);
      expect(chunks.flatMap(({ hashes }) => hashes)).toEqual(
        items.map((one) => canonicalHash(one)),
      );
      chunks.forEach(({ start }, at) =>
        expect(start).toBe(chunks.slice(0, at).reduce((sum, one) => sum + one.hashes.length, 0)),
      );
    }
  });

  it('fills a batch to its last byte', async () => {
    const line = utf8('{"n":1}\n').length;
    const chunks = await all([{ n: 1 }, { n: 2 }, { n: 3 }], { items: 10, bytes: 2 * line });
    expect(chunks.map(({ hashes }) => hashes.length)).toEqual([2, 1]);
  });
});

describe('inOrder', () => {
  async function* numbers(count: number): AsyncGenerator<number> {
    for (let at = 0; at < count; at++) {
      await Promise.resolve();
      yield at;
    }
  }

  it('keeps the order, and no more than so many under way', async () => {
    let [underWay, most] = [0, 0];
    const work = async (at: number): Promise<number> => {
      most = Math.max(most, ++underWay);
      await new Promise((resolve) => setTimeout(resolve, at % 2 === 0 ? 20 : 1));
      underWay -= 1;
      return at;
    };
    const out: number[] = [];
    for await (const at of inOrder(numbers(9), work, 3)) out.push(at);
    expect(out).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(most).toBe(3);
  });
});
