import { randomBytes } from 'node:crypto';
import { endedEarly, startBatchLoad } from '../batches/batch-load.js';
import type { BenchRegistry } from '../service/registry.js';
import { measureWindow, type Window } from '../batches/window.js';
import { startPipeline } from './pipeline.js';

export interface PipelinePlan {
  items: number;
  underWay: number;
  warmUpSeconds: number;
  seconds: number;
}

/** The bare pipeline under the very batches that the service is put under, counted in the same way. */
export async function runPipelineBatches(
  registry: BenchRegistry,
  dir: string,
  { items, underWay, ...times }: PipelinePlan,
  signal: AbortSignal,
): Promise<Window> {
  const pipeline = await startPipeline(registry, dir);
  try {
    const { engineUrl, publicUrl, watched, failed } = pipeline;
    const { apiKey, tenantId } = registry;
    const source = { tenantId, run: randomBytes(6).toString('hex') };
    const load = startBatchLoad(
      { engineUrl, publicUrl, apiKey, source, items, underWay },
      { onSent: () => undefined },
    );
    try {
      const all = { ...watched, client: [load.pid] };
      const window = measureWindow(publicUrl, all, { ...times, signal });
      window.catch(() => undefined);
      return await Promise.race([window, endedEarly(load), failed]);
    } finally {
      await load.stop().catch(() => undefined);
    }
  } finally {
    await pipeline.close();
  }
}
