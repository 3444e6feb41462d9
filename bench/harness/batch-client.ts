import { setTimeout as sleep } from 'node:timers/promises';
import { report, runTask } from './child.js';
import { batchBody, sendBatch } from './engine-api.js';
import type { ItemSource } from './items.js';
import { readiness } from './public-api.js';

export interface BatchClientTask {
  engineUrl: string;
  publicUrl: string;
  apiKey: string;
  source: ItemSource;
  items: number;
  /** Limit on items accepted but not yet public; large enough to keep every stage busy. */
  inFlight: number;
  total?: number | undefined;
}

export interface SentBatch {
  batchId: string;
  first: number;
  items: number;
}

export type BatchClientMessage = { sent: SentBatch } | { retried: string };

/** Number of concurrent senders: an engine reads this many batches of a tenant at once. */
const SENDERS = 2;
const POLL_MS = 100;

runTask<BatchClientTask>(async (task, stopping) => {
  const { total = Infinity } = task;
  const before = (await readiness(task.publicUrl)).tree_size;
  // A number of leaves: also counts the few leaves that are not proofs.
  let published = 0;
  let next = 0;

  async function poll(): Promise<void> {
    while (!stopping.aborted) {
      published = (await readiness(task.publicUrl)).tree_size - before;
      await sleep(POLL_MS);
    }
  }

  async function send(): Promise<void> {
    while (!stopping.aborted && next < total) {
      if (next - published + task.items > task.inFlight) {
        await sleep(POLL_MS / 2);
        continue;
      }
      const first = next;
      next = Math.min(first + task.items, total);
      await sendUntilAccepted(task, first, next - first);
    }
  }

  const polling = poll();
  const senders = Promise.all(Array.from({ length: SENDERS }, send));
  await Promise.race([polling, senders]);
  await senders;
});

/** Retries a batch until the engine has room for all of its items. */
async function sendUntilAccepted(
  { engineUrl, apiKey, source }: BatchClientTask,
  first: number,
  items: number,
): Promise<void> {
  const body = batchBody(source, first, items);
  for (;;) {
    const answer = await sendBatch(engineUrl, { apiKey, tenantId: source.tenantId }, body);
    if (answer.batchId !== null) {
      report({ sent: { batchId: answer.batchId, first, items } });
      return;
    }
    const { status, code, retryAfterSeconds } = answer;
    if (status !== 503 && status !== 429) {
      throw new Error(`the engine answered a batch with ${String(status)} ${code}`);
    }
    report({ retried: code });
    await sleep(retryAfterSeconds * 1000);
  }
}
