import { join } from 'node:path';
import { Piscina } from 'piscina';
import { BusyError, Limiter } from '#runtime/concurrency';
import { packageRoot } from '#runtime/process/files';
import { Problem } from '../http/problem.js';
import type { PdfRequest } from './render.js';

export interface PdfRendererOptions {
  threads: number;
  /** Maximum number of requests that wait for a thread. */
  queued: number;
  /** Time limit of a request, including its wait for a thread. */
  timeoutMs: number;
  file?: string;
}

export const PDF_DEFAULTS = { threads: 2, queued: 32, timeoutMs: 15_000 } as const;

const IDLE_MS = 30_000;
const THREAD_MEMORY_MB = 256;

/** Threads run the built file even if this file runs from source. */
const BUILT = join(packageRoot, 'dist', 'api', 'engine', 'pdf', 'render.js');

/** Renders in worker threads, so that layout does not block the event loop. Threads start on demand. */
export function createPdfRenderer(options: PdfRendererOptions) {
  const { file = BUILT, queued, threads, timeoutMs } = options;
  const accepted = new Map<Promise<Uint8Array>, number>();
  const slots = threads + queued;
  const share = Math.ceil(slots / 2);
  // Serves the tenants round-robin. Piscina's own queue starts abortable tasks in an arbitrary order.
  const limiter = new Limiter({
    total: threads,
    perOwner: threads,
    maxWaiting: queued,
    timeoutMs,
  });
  let pool: Piscina<PdfRequest, Uint8Array> | null = null;
  let closed = false;

  const open = () => {
    const opened = new Piscina<PdfRequest, Uint8Array>({
      filename: file,
      minThreads: 0,
      maxThreads: threads,
      idleTimeout: IDLE_MS,
      resourceLimits: { maxOldGenerationSizeMb: THREAD_MEMORY_MB },
      // Piscina would require the ES module, and Node ends the process when a timeout interrupts that.
      execArgv: ['--no-experimental-require-module'],
      // Rendering parses untrusted text: keep the environment's secrets out of the threads.
      env: {},
    });
    // A thread can fail after its request timed out. Without a listener, its `error` event would end the process.
    opened.on('error', () => undefined);
    return opened;
  };

  async function run(request: PdfRequest, tenantNo: number): Promise<Uint8Array> {
    const signal = AbortSignal.timeout(timeoutMs);
    const opened = (pool ??= open());
    try {
      return await limiter.run(tenantNo, () => opened.run(request, { signal }));
    } catch (cause) {
      if (!signal.aborted && !(cause instanceof BusyError)) throw cause;
      throw new Problem('render_timeout', { cause });
    }
  }

  const acceptedOf = (tenantNo: number): number =>
    [...accepted.values()].filter((one) => one === tenantNo).length;

  return {
    async render(request: PdfRequest, tenantNo: number): Promise<Uint8Array> {
      // Counts the requests here, because Piscina's own limit does not count abortable tasks.
      if (closed || accepted.size >= slots) throw new Problem('renderer_busy');
      if (acceptedOf(tenantNo) >= share)
        throw new Problem('renderer_busy', { isTenantLimit: true });
      const rendering = run(request, tenantNo);
      accepted.set(rendering, tenantNo);
      try {
        return await rendering;
      } finally {
        accepted.delete(rendering);
      }
    },
    async close(): Promise<void> {
      closed = true;
      await Promise.allSettled(accepted.keys());
      await pool?.destroy();
    },
  };
}
