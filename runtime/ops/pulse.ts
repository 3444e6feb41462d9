export type HeartbeatState = 'up' | 'failing' | 'stalled';

/** Whether something that has to happen again and again still does, and how it went last. */
export class Heartbeat {
  private readonly beganAt = performance.now();
  private goodAt: number | null = null;
  private isFailing = false;

  /** @param stalledAfterMs without a good end for so long, it does not go on */
  constructor(private readonly stalledAfterMs: number) {}

  success(): void {
    this.goodAt = performance.now();
    this.isFailing = false;
  }

  failed(): void {
    this.isFailing = true;
  }

  get state(): HeartbeatState {
    if (this.isFailing) return 'failing';
    const since = this.goodAt ?? this.beganAt;
    return performance.now() - since > this.stalledAfterMs ? 'stalled' : 'up';
  }
}
