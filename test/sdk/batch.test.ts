import { describe, expect } from 'vitest';
import type { Batch } from '#protocol/schemas/batch';
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
import { sumProgress } from '#sdk/engine/batch';
import { treeSize } from '#sql/log/log';
import type { Fault } from '../fixtures/broken-network.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, sdkTest } from '../fixtures/sdk-world.js';

const it = sdkTest();

const execution = (action?: string): ExecuteRequest =>
  executeRequest('acme', intent(action === undefined ? {} : { action }));
const executions = (count: number): BatchItem[] => Array.from({ length: count }, () => execution());

async function admitAll(
  options: EngineOptions,
  items: Iterable<BatchItem> | AsyncIterable<BatchItem>,
  settings?: BatchSettings,
): Promise<BatchItemResult[]> {
  const results: BatchItemResult[] = [];
  for await (const result of admitBatchHttp(options, items, settings)) results.push(result);
  return results;
}

const unchanged: Fault = { kind: 'late', ms: 0 };

describe('admitBatchHttp', () => {
  it('yields the result of each item in the order of the input', async ({ world }) => {
    const kept = execution();
    const items: BatchItem[] = [
      kept,
      agentEnvelope('acme', { kind: 'admission', agent: { id: 'a' }, action: 'SEND_REPORT' }),
      execution('DELETE_AUDIT_LOG'),
      { ...kept, action: 'not upper case' },
      kept,
    ];
    const results = await admitAll(world.shaky, items);
    expect(results.map(({ index, state }) => [index, state])).toEqual([
      [0, 'admitted'],
      [1, 'admitted'],
      [2, 'denied'],
      [3, 'invalid'],
      [4, 'admitted'],
    ]);
    const [first, , denied, invalid, repeated] = results;
    expect(first).toMatchObject({ receipt: { request_hash: canonicalHash({ ...kept }) } });
    expect(repeated).toMatchObject({ proof_id: first?.proof_id, replayed: true });
    expect(denied).toMatchObject({ denial: { receipt: { status: 'DENIED' } } });
    expect(invalid).toMatchObject({ problem: { code: 'invalid_field' } });
    expect(invalid?.proof_id).toBeUndefined();
    expect(await admitAll(world.shaky, [])).toEqual([]);
  });

  it('splits a long input into batches, and sums their progress', async ({ world }) => {
    const progress: BatchProgress[] = [];
    async function* source(): AsyncGenerator<BatchItem> {
      for (const item of executions(23)) {
        await Promise.resolve();
        yield item;
      }
    }
    const settings = { maxItems: 5, onProgress: (one: BatchProgress) => progress.push(one) };
    const results = await admitAll(world.shaky, source(), settings);
    expect(results.map(({ index }) => index)).toEqual(Array.from({ length: 23 }, (_, at) => at));
    expect(new Set(results.map(({ batch_id }) => batch_id)).size).toBe(5);
    const [post, ...others] = world.network.seen.filter(({ method }) => method === 'POST');
    expect(others).toHaveLength(4);
    expect(post?.headers['content-type']).toBe('application/x-ndjson');
    const lines = (post?.body ?? '').trimEnd().split('\n');
    const hashes = lines.map((line) => canonicalHash(JSON.parse(line) as JsonValue));
    expect(post?.headers['x-svc-idempotency-key']).toBe(canonicalHash(hashes));
    const none = {
      denied: 0,
      replayed: 0,
      approval_required: 0,
      refused: 0,
      invalid: 0,
      pending: 0,
    };
    expect(progress.at(-1)).toEqual({ accepted: 23, admitted: 23, ...none });
  });

  it('returns the first receipts for a repeated input, despite faults', async ({ world }) => {
    const items = executions(12);
    const before = await treeSize(world.db.sql);
    world.network.faults.push(
      { kind: 'unanswered' },
      { kind: 'lost' },
      { kind: 'cut' },
      { kind: 'answer', status: 503 },
    );
    const first = await admitAll(world.shaky, items, { maxItems: 4 });
    const again = await admitAll(world.shaky, items, { maxItems: 4 });
    expect(again.map(({ proof_id }) => proof_id)).toEqual(first.map(({ proof_id }) => proof_id));
    expect(await treeSize(world.db.sql)).toBe(before + 12);
  });

  it('reads an endless input only as fast as it admits', async ({ world }) => {
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

  it('throws the error of its input source, and stops all requests', async ({ world }) => {
    world.engine.worker.isPaused = true;
    const broken = new Error('the file ended');
    function* source(): Generator<BatchItem> {
      yield execution();
      yield execution();
      throw broken;
    }
    await expect(admitAll(world.shaky, source(), { maxItems: 1 })).rejects.toBe(broken);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const sent = world.network.seen.length;
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(world.network.seen.length).toBe(sent);
    world.engine.worker.isPaused = false;
    await world.engine.worker.work();
  });

  it('times out without progress, but not while there is progress', async ({ world }) => {
    const { worker } = world.engine;
    worker.isPaused = true;
    const options = { ...world.shaky, timeoutMs: 1_500 };
    await sdkError(admitAll(options, executions(2)), 'timeout');
    worker.isPaused = false;
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
    // Together these delays exceed the timeout, but each is much shorter.
    world.network.faults.push(unchanged, at(5), at(4), at(3), at(2), at(1));
    expect(await admitAll(options, executions(5))).toHaveLength(5);
  });

  it.for<[string, (body: string) => string]>([
    [
      'a denial with the state admitted',
      (body) => body.replace('"state":"denied"', '"state":"admitted"'),
    ],
    ['another order', (body) => body.replace('"index":0', '"index":1')],
    ['the receipt of another item', swapReceipts],
    ['a pending item', (body) => body.replace('"state":"denied"', '"state":"pending"')],
    [
      'too few results',
      (body) => {
        const page = JSON.parse(body) as { results: unknown[] };
        return JSON.stringify({ ...page, results: page.results.slice(0, 2) });
      },
    ],
  ])('throws for results with %s', async ([, change], { world }) => {
    const items = [execution(), execution('DELETE_AUDIT_LOG'), execution()];
    await admitAll(world.shaky, items);
    // Admitting the completed batch again takes one POST, one poll and one page of results.
    world.network.faults.push(unchanged, unchanged, { kind: 'changed', change });
    const error = await sdkError(admitAll(world.shaky, items), 'unexpected_response');
    expect(error.message).toContain('results');
  });
});

function swapReceipts(body: string): string {
  const page = JSON.parse(body) as { results: { receipt?: unknown; proof_id?: unknown }[] };
  const [first, , third] = page.results;
  if (first === undefined || third === undefined) throw new Error('expected three results');
  [first.receipt, third.receipt] = [third.receipt, first.receipt];
  [first.proof_id, third.proof_id] = [third.proof_id, first.proof_id];
  return JSON.stringify(page);
}

it('sumProgress > does not read all earlier batches for each update', () => {
  const batches = 20_000;
  let last: BatchProgress | undefined;
  const update = sumProgress((progress) => (last = progress));
  const none = { denied: 0, approval_required: 0, refused: 0, invalid: 0 };
  const startedAt = performance.now();
  for (let n = 0; n < batches; n++) {
    for (const pending of [1, 0]) {
      const counts = { total: 1, admitted: 1 - pending, ...none, pending };
      update({ batch_id: `batch_${n}`, counts, replayed: 0 } as Batch);
    }
  }
  expect(last).toEqual({ accepted: batches, admitted: batches, ...none, pending: 0, replayed: 0 });
  expect(performance.now() - startedAt).toBeLessThan(2_000);
});

it('followBatchHttp > returns the results of a batch, and rejects malformed and unknown ids', async ({
  world,
}) => {
  const [one] = await admitAll(world.shaky, executions(2));
  const results = await followBatchHttp(world.options, { batch_id: one?.batch_id ?? '' });
  expect(results[0]).toEqual(one);
  await sdkError(followBatchHttp(world.options, { batch_id: 'batch_1' }), 'invalid_input');
  const unknown = { batch_id: 'batch_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' };
  await sdkError(followBatchHttp(world.options, unknown), 'not_found');
});
