import { Problem } from '../http/problem.js';

export interface BatchUploadsOptions {
  /** Maximum number of concurrent uploads per tenant; an upload counts until its batch is durable or rejected. */
  perTenant: number;
  /** Bytes of all bodies in memory, not counting the first MiB of each. */
  budget: number;
}

export interface BatchUpload {
  /** Aborted when the upload is too slow and a different upload needs its memory. */
  readonly evicted: AbortSignal;
  /** Waits while the memory budget is used up. @throws Problem too_many_batches, upload_too_slow */
  received(bytes: number): Promise<void>;
  /** Marks the body as complete: complete bodies are never evicted. */
  complete(): void;
  release(): void;
}

interface Upload {
  tenantNo: number;
  bytes: number;
  /** Bytes received since `progressAt`; reset at 1 MiB. */
  progress: number;
  /** When the upload last completed a MiB. */
  progressAt: number;
  /** Whether data may arrive: false while the upload waits for memory, and once the body is complete. */
  isArriving: boolean;
  eviction: AbortController;
}

const MIB = 1024 * 1024;
/** An upload that receives less than 1 MiB in this many milliseconds may be evicted. */
const SLOW_MS = 1_000;
/** Longest wait for memory and interval between attempts, in milliseconds. */
const WAIT_MS = 2_000;
const POLL_MS = 50;

/**
 * Bounds the memory of bodies during upload. The first MiB of an upload does not count, so that one
 * tenant's uploads cannot block another tenant's small batches.
 */
export class BatchUploads {
  private readonly uploads = new Set<Upload>();
  private held = 0;

  constructor(private readonly options: BatchUploadsOptions) {}

  /** @throws Problem `too_many_batches` when the tenant has too many uploads */
  start(tenantNo: number): BatchUpload {
    const own = [...this.uploads].filter((upload) => upload.tenantNo === tenantNo).length;
    if (own >= this.options.perTenant)
      throw new Problem('too_many_batches', { isTenantLimit: true });
    const upload: Upload = {
      tenantNo,
      bytes: 0,
      progress: 0,
      progressAt: performance.now(),
      isArriving: true,
      eviction: new AbortController(),
    };
    this.uploads.add(upload);
    return {
      evicted: upload.eviction.signal,
      received: (bytes) => this.received(upload, bytes),
      complete: () => {
        upload.isArriving = false;
      },
      release: () => this.release(upload),
    };
  }

  private async received(upload: Upload, bytes: number): Promise<void> {
    const until = performance.now() + WAIT_MS;
    while (!this.reserve(upload, bytes)) {
      if (performance.now() >= until) throw new Problem('too_many_batches');
      upload.isArriving = false;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      upload.isArriving = true;
      upload.progressAt = performance.now();
    }
  }

  /** Evicts slow uploads until the bytes fit. Returns false when no slow upload is left to evict. */
  private reserve(upload: Upload, bytes: number): boolean {
    const more = overFree(upload.bytes + bytes) - overFree(upload.bytes);
    while (more > 0 && this.held + more > this.options.budget) {
      const slow = this.slowest();
      if (slow === undefined) return false;
      this.release(slow);
      slow.eviction.abort(new Problem('upload_too_slow'));
    }
    upload.eviction.signal.throwIfAborted();
    this.held += more;
    upload.bytes += bytes;
    upload.progress += bytes;
    if (upload.progress >= MIB) {
      upload.progress = 0;
      upload.progressAt = performance.now();
    }
    return true;
  }

  private slowest(): Upload | undefined {
    const now = performance.now();
    return [...this.uploads]
      .filter(({ isArriving, bytes }) => isArriving && overFree(bytes) > 0)
      .filter(({ progressAt }) => now - progressAt >= SLOW_MS)
      .sort((a, b) => a.progressAt - b.progressAt)[0];
  }

  private release(upload: Upload): void {
    if (this.uploads.delete(upload)) this.held -= overFree(upload.bytes);
  }
}

const overFree = (bytes: number): number => Math.max(0, bytes - MIB);
