import { expect } from 'vitest';
import type { BatchResult } from '#protocol/schemas/batch';
import { batchCall, batchIn, resultsOf } from '../../fixtures/batches.js';
import { workBatches, type Reply } from '../../fixtures/engine.js';
import { engineTest } from './setup.js';

type Headers = Record<string, string>;

export const batchTest = () =>
  engineTest({ rateLimit: 100_000 }).extend<{
    send: (body: unknown, headers?: Headers) => Promise<Reply>;
    results: (batchId: string) => Promise<BatchResult[]>;
    /** Sends a batch and waits until every item is decided. */
    completed: (
      body: unknown,
      headers?: Headers,
    ) => Promise<{ reply: Reply; batchId: string; results: BatchResult[] }>;
  }>({
    send: async ({ setup: { engine, key } }, use) =>
      use((body, headers) => engine.call(batchCall(key, body, headers))),
    results: async ({ setup: { engine, key } }, use) => use((id) => resultsOf(engine, key, id)),
    completed: async ({ results, send, setup: { registry } }, use) =>
      use(async (body, headers) => {
        const reply = await send(body, headers);
        expect(reply.status, reply.bytes.toString()).toBe(202);
        const { batch_id: batchId } = batchIn(reply);
        await workBatches(registry);
        return { reply, batchId, results: await results(batchId) };
      }),
  });
