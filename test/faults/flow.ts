import type { Socket } from 'node:net';

/** Current fault of a connection. */
export interface Weather {
  delayMs: number;
  /** Drops everything silently. */
  isStalled: boolean;
}

/** One direction of one connection: bytes come out in their order, as late as the weather has it. */
export class Flow {
  /** Null is the end. */
  private readonly waiting: { due: number; bytes: Buffer | null }[] = [];
  private timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly to: Socket,
    private readonly weather: Weather,
  ) {}

  push(bytes: Buffer | null): void {
    this.waiting.push({ due: performance.now() + this.weather.delayMs, bytes });
    this.pump();
  }

  /** Called also when the weather changes. */
  pump(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    for (let next = this.waiting[0]; next !== undefined; next = this.waiting[0]) {
      if (this.weather.isStalled || this.to.destroyed) return;
      const wait = next.due - performance.now();
      if (wait > 0.5) {
        this.timer = setTimeout(() => this.pump(), wait);
        return;
      }
      this.waiting.shift();
      if (next.bytes === null) this.to.end();
      else this.to.write(next.bytes);
    }
  }

  stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.waiting.length = 0;
  }
}
