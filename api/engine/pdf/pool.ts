import { join } from 'node:path';
import { Piscina } from 'piscina';
import { packageRoot } from '#runtime/process/package-root';
import type { PdfRequest } from './render.js';

/** Every thread is busy and as many requests wait as may: nothing is wrong with this one. */
export class RendererBusyError extends Error {
  override readonly name = 'RendererBusyError';
}

/** The document was not rendered in time. */
export class RenderTimeoutError extends Error {
  override readonly name = 'RenderTimeoutError';
}

export interface PdfRenderer {
  /**
   * @param asker who it is for: nobody gets more than half of all places, so that one who asks for
   *   paper after paper does not leave the others without
   * @throws {@link RendererBusyError}, {@link RenderTimeoutError}
   */
  render(request: PdfRequest, asker?: number): Promise<Uint8Array>;
  /** Lets what was taken on be rendered; nothing more is. */
  close(): Promise<void>;
}

export interface PdfRendererOptions {
  threads: number;
  /** Requests that may wait for a thread. */
  queued: number;
  /** From the request to the document, waiting included. */
  timeoutMs: number;
  /** What the threads run. */
  file?: string;
}

export const PDF_DEFAULTS = { threads: 2, queued: 32, timeoutMs: 15_000 } as const;

/** A thread with nothing to do is kept for so long. */
const IDLE_MS = 30_000;
const THREAD_MEMORY_MB = 256;

/** Threads run what was built, also where this file itself is run from source. */
const BUILT = join(packageRoot, 'dist', 'api', 'engine', 'pdf', 'thread.js');

/**
 * Renders in threads of its own, so that laying out pages never keeps the API from answering. They
 * are started by the first request: an engine that is asked for no PDF has none.
 */
export function createPdfRenderer(options: PdfRendererOptions): PdfRenderer {
  const { file = BUILT, queued, threads, timeoutMs } = options;
  const taken = new Map<Promise<Uint8Array>, number | undefined>();
  const places = threads + queued;
  const share = Math.ceil(places / 2);
  let pool: Piscina<PdfRequest, Uint8Array> | null = null;
  let closed = false;

  const open = () => {
    const opened = new Piscina<PdfRequest, Uint8Array>({
      filename: file,
      minThreads: 0,
      maxThreads: threads,
      idleTimeout: IDLE_MS,
      resourceLimits: { maxOldGenerationSizeMb: THREAD_MEMORY_MB },
      // Rendering needs nothing of the environment, least of all the database's address.
      env: {},
    });
    // Of a thread that works for nobody any more, such as one that ran out of memory when its time was up:
    // whoever waited has been told. Unheard, it would end the engine.
    opened.on('error', () => undefined);
    return opened;
  };

  async function run(request: PdfRequest): Promise<Uint8Array> {
    const signal = AbortSignal.timeout(timeoutMs);
    pool ??= open();
    try {
      return await pool.run(request, { signal });
    } catch (cause) {
      if (!signal.aborted) throw cause;
      throw new RenderTimeoutError(`not rendered within ${timeoutMs} ms`, { cause });
    }
  }

  const takenBy = (asker: number): number =>
    [...taken.values()].filter((one) => one === asker).length;

  return {
    async render(request, asker) {
      // Counted here: the pool's own limit leaves out tasks that can be aborted.
      if (closed || taken.size >= places) {
        throw new RendererBusyError(closed ? 'the renderer is closed' : 'the queue is full');
      }
      if (asker !== undefined && takenBy(asker) >= share) {
        throw new RendererBusyError('this tenant has its share of the queue');
      }
      const rendering = run(request);
      taken.set(rendering, asker);
      try {
        return await rendering;
      } finally {
        taken.delete(rendering);
      }
    },
    async close() {
      closed = true;
      await Promise.allSettled(taken.keys());
      await pool?.destroy();
    },
  };
}
