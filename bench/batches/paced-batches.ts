import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { engineHeaders } from '../service/headers.js';
import { requestAt, type ItemSource } from '../service/items.js';
import type { BenchStack } from '../service/stack.js';

export interface Paced {
  /** Items a second that were accepted. */
  rate: number;
  /** Answers that were no 202, by what they were. */
  refused: Map<string, number>;
}

/** Small ones: a steady stream, and no wave that has to settle. */
const PER_SECOND = 5;

/**
 * Sends items of both kinds in batches, so many a second, until `signal` fires: one batch at a time,
 * and where one took long, the next ones sooner.
 */
export async function sendPaced(
  stack: Pick<BenchStack, 'engineUrl' | 'registry'>,
  itemsPerSecond: number,
  signal: AbortSignal,
): Promise<Paced> {
  const source = { tenantId: stack.registry.tenantId, run: randomBytes(6).toString('hex') };
  const items = Math.max(1, Math.round(itemsPerSecond / PER_SECOND));
  const refused = new Map<string, number>();
  let accepted = 0;
  const began = performance.now();
  for (let n = 0; !signal.aborted; n += 1) {
    const problem = await sendBatch(stack, source, n * items, items);
    if (problem === null) accepted += items;
    else refused.set(problem, (refused.get(problem) ?? 0) + 1);
    const early = began + ((n + 1) * 1000) / PER_SECOND - performance.now();
    if (early > 0) await sleep(early, undefined, { signal }).catch(() => undefined);
  }
  return { rate: (accepted * 1000) / (performance.now() - began), refused };
}

/** Null when it was accepted. */
async function sendBatch(
  { engineUrl, registry: { apiKey, tenantId } }: Pick<BenchStack, 'engineUrl' | 'registry'>,
  source: ItemSource,
  first: number,
  items: number,
): Promise<string | null> {
  const lines = Array.from({ length: items }, (_, i) =>
    JSON.stringify(requestAt(source, first + i)),
  );
  const response = await fetch(`${engineUrl}/v1/batches`, {
    method: 'POST',
    headers: { ...engineHeaders(apiKey, tenantId), 'Content-Type': 'application/x-ndjson' },
    body: lines.join('\n'),
  });
  const { code = '' } = (await response.json()) as { code?: string };
  return response.status === 202 ? null : `${String(response.status)} ${code}`.trim();
}
