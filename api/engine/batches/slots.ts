import { Problem } from '../http/problem.js';

export interface BatchSlotsOptions {
  /** Batches that are read and made durable at a time: each may be the largest there is, in memory. */
  most: number;
  /** Of one tenant. */
  mostOfOne: number;
}

/** A batch's place among those that are read and made durable. */
export interface BatchSlot {
  /** Fires when the upload was too slow and another batch needs the place. */
  readonly evicted: AbortSignal;
  /** Counts bytes of the body. */
  received(bytes: number): void;
  /** The body is complete: from here on the place is kept. */
  complete(): void;
  release(): void;
}

interface Upload {
  tenantNo: number;
  startedAt: number;
  bytes: number;
  eviction: AbortController;
}

/** An upload slower than this, in bytes per second, gives its place to a batch that needs one. */
const MIN_RATE = 1024 * 1024;
/** Milliseconds after which the rate of an upload counts. */
const GRACE_MS = 1_000;

export class BatchSlots {
  private readonly held = new Set<Upload>();
  private readonly arriving = new Set<Upload>();

  constructor(private readonly options: BatchSlotsOptions) {}

  /** @throws Problem `too_many_batches` when no place is free */
  take(tenantNo: number): BatchSlot {
    const own = [...this.held].filter((upload) => upload.tenantNo === tenantNo).length;
    if (own >= this.options.mostOfOne) throw tooManyBatches();
    if (this.held.size >= this.options.most) this.evictSlowest();
    if (this.held.size >= this.options.most) throw tooManyBatches();
    const eviction = new AbortController();
    const upload = { tenantNo, startedAt: performance.now(), bytes: 0, eviction };
    this.held.add(upload);
    this.arriving.add(upload);
    return {
      evicted: eviction.signal,
      received: (bytes) => {
        upload.bytes += bytes;
      },
      complete: () => void this.arriving.delete(upload),
      release: () => this.release(upload),
    };
  }

  private release(upload: Upload): void {
    this.held.delete(upload);
    this.arriving.delete(upload);
  }

  private evictSlowest(): void {
    const now = performance.now();
    const rate = ({ bytes, startedAt }: Upload): number => (bytes * 1000) / (now - startedAt);
    const [slowest] = [...this.arriving]
      .filter((upload) => now - upload.startedAt >= GRACE_MS && rate(upload) < MIN_RATE)
      .sort((a, b) => rate(a) - rate(b));
    if (slowest === undefined) return;
    this.release(slowest);
    slowest.eviction.abort(uploadTooSlow());
  }
}

function tooManyBatches(): Problem {
  return new Problem(
    'too_many_batches',
    'Other batches are being taken in. Nothing was accepted; send it again later.',
    { headers: { 'Retry-After': '1' } },
  );
}

function uploadTooSlow(): Problem {
  return new Problem(
    'upload_too_slow',
    'The body arrived slower than 1 MiB per second while other batches waited. Nothing was accepted; send it again later or in smaller batches.',
    // The rest of the body is not read.
    { headers: { 'Retry-After': '1', Connection: 'close' } },
  );
}
