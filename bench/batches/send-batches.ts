import { randomBytes } from 'node:crypto';
import { engineHeaders } from '../service/headers.js';
import { requestAt } from '../service/items.js';
import type { BenchRegistry } from '../service/registry.js';

/** Items of one batch. */
const BATCH = 5_000;

/**
 * Sends batches through the engine, one after the other, until `count` items are accepted.
 *
 * @throws Error when one is not: there has to be room for all of them
 */
export async function sendBatches(
  registry: BenchRegistry,
  engineUrl: string,
  count: number,
): Promise<number> {
  const source = { tenantId: registry.tenantId, run: randomBytes(6).toString('hex') };
  for (let first = 0; first < count; first += BATCH) {
    const length = Math.min(BATCH, count - first);
    const items = Array.from({ length }, (_, i) => JSON.stringify(requestAt(source, first + i)));
    const response = await fetch(`${engineUrl}/v1/batches`, {
      method: 'POST',
      headers: {
        ...engineHeaders(registry.apiKey, registry.tenantId),
        'Content-Type': 'application/x-ndjson',
      },
      body: `${items.join('\n')}\n`,
    });
    const answer = await response.text();
    if (response.status !== 202) {
      throw new Error(`a batch was answered ${String(response.status)}: ${answer}`);
    }
  }
  return count;
}
