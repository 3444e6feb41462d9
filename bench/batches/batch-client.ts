import { setTimeout as sleep } from 'node:timers/promises';
import type { BatchClientMessage, BatchClientTask } from './batch-client-task.js';
import { engineHeaders } from '../service/headers.js';
import { requestAt, type ItemSource } from '../service/items.js';
import { readiness } from '../service/readiness.js';

/** Entry point of a tenant that has more to admit than there is room for. SIGTERM ends it. */

/** As many as an engine takes in of one tenant at a time. */
const SENDERS = 2;
const LOOK_EVERY_MS = 100;

const stopping = new AbortController();
process.once('SIGTERM', () => stopping.abort());
process.once('message', (message) => {
  process.once('disconnect', () => stopping.abort());
  void work(message as BatchClientTask).finally(() => {
    if (process.connected) process.disconnect();
  });
});

const say = (message: BatchClientMessage): void => {
  if (process.connected) process.send?.(message);
};

async function work(task: BatchClientTask): Promise<void> {
  try {
    await sendAll(task);
  } catch (error) {
    process.exitCode = 1;
    say({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
}

async function sendAll(task: BatchClientTask): Promise<void> {
  const before = (await readiness(task.publicUrl)).proofs;
  let published = 0;
  let next = 0;

  async function look(): Promise<void> {
    while (!stopping.signal.aborted) {
      published = (await readiness(task.publicUrl)).proofs - before;
      await sleep(LOOK_EVERY_MS);
    }
  }

  async function send(): Promise<void> {
    while (!stopping.signal.aborted) {
      if (next - published + task.items > task.underWay) {
        await sleep(LOOK_EVERY_MS / 2);
        continue;
      }
      const first = next;
      next += task.items;
      await sendOne(task, first);
    }
  }

  const looking = look();
  const senders = Array.from({ length: SENDERS }, send);
  // A failure of any of them ends it; otherwise what is on its way is still sent and told.
  await Promise.race([looking, Promise.all(senders)]);
  await Promise.all(senders);
}

/** Sends one batch, again when it is told to: nothing of it was accepted then. */
async function sendOne(task: BatchClientTask, first: number): Promise<void> {
  const body = linesOf(task.source, first, task.items);
  for (;;) {
    const began = performance.now();
    const response = await fetch(`${task.engineUrl}/v1/batches`, {
      method: 'POST',
      headers: {
        ...engineHeaders(task.apiKey, task.source.tenantId),
        'Content-Type': 'application/x-ndjson',
      },
      body,
    });
    const answer = (await response.json()) as { batch_id?: string; code?: string };
    if (response.status === 202 && answer.batch_id !== undefined) {
      const sent = { batchId: answer.batch_id, first, items: task.items };
      say({ sent, answeredMs: performance.now() - began });
      return;
    }
    const { status } = response;
    if (status !== 503 && status !== 429) {
      throw new Error(`a batch was answered ${String(status)}: ${JSON.stringify(answer)}`);
    }
    say({ waited: { status, code: answer.code ?? '' } });
    await sleep(Number(response.headers.get('retry-after') ?? 1) * 1000);
  }
}

/** ASCII, one item a line. */
function linesOf(source: ItemSource, first: number, items: number): Buffer {
  const body = Buffer.allocUnsafe(items * LONGEST_LINE);
  let at = 0;
  for (let n = first; n < first + items; n += 1) {
    at += body.write(`${JSON.stringify(requestAt(source, n))}\n`, at, 'latin1');
  }
  return body.subarray(0, at);
}

const LONGEST_LINE = 1_024;
