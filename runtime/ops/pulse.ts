export type PulseState = 'up' | 'failing' | 'stalled';

/** Whether something that has to happen again and again still does, and how it went last. */
export class Pulse {
  private readonly beganAt = performance.now();
  private goodAt: number | null = null;
  private isFailing = false;

  /** @param stalledAfterMs without a good end for so long, it does not go on */
  constructor(private readonly stalledAfterMs: number) {}

  good(): void {
    this.goodAt = performance.now();
    this.isFailing = false;
  }

  failed(): void {
    this.isFailing = true;
  }

  get state(): PulseState {
    if (this.isFailing) return 'failing';
    const since = this.goodAt ?? this.beganAt;
    return performance.now() - since > this.stalledAfterMs ? 'stalled' : 'up';
  }
}
