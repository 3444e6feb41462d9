/** Numbers that follow from a seed alone (mulberry32), so that what was found can be found again. */
export class Random {
  constructor(private state: number) {}

  /** 0 to 2^32 - 1 */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  below(end: number): number {
    return this.next() % Math.max(1, end);
  }

  of<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  chance(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }
}
