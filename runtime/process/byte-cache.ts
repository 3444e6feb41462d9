export interface Kept<V> {
  /** The cached value; undefined once dropped. */
  value: V | undefined;
  readonly bytes: number;
  /** Each use sets this flag. */
  isUsed: boolean;
}

/**
 * A cache with a byte limit, which drops the oldest values, but gives a used value a second chance (the CLOCK
 * algorithm): a use sets a flag, which costs less than a change of order. The latest value is kept whatever its size.
 */
export class ByteCache<V> {
  private readonly kept = new Map<string, Kept<V>>();
  private bytes = 0;

  constructor(private readonly limit: number) {}

  get(name: string): V | undefined {
    const found = this.find(name);
    if (found !== undefined) found.isUsed = true;
    return found?.value;
  }

  /** Returns the cache's own object, which a caller may keep to read the value without the name. */
  find(name: string): Kept<V> | undefined {
    return this.kept.get(name);
  }

  put(name: string, value: V, bytes: number): void {
    this.delete(name);
    const latest: Kept<V> = { value, bytes, isUsed: false };
    this.kept.set(name, latest);
    this.bytes += bytes;
    for (const [oldest, kept] of this.kept) {
      if (this.bytes <= this.limit || this.kept.size === 1) return;
      if (kept.isUsed || kept === latest) {
        kept.isUsed = false;
        this.kept.delete(oldest);
        this.kept.set(oldest, kept);
      } else this.delete(oldest);
    }
  }

  delete(name: string): void {
    const kept = this.kept.get(name);
    if (kept === undefined) return;
    this.bytes -= kept.bytes;
    kept.value = undefined;
    this.kept.delete(name);
  }
}
