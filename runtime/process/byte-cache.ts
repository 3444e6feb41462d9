/** A least-recently-used cache with a byte limit. The latest value is kept whatever its size. */
export class ByteCache<V> {
  private readonly kept = new Map<string, { value: V; bytes: number }>();
  private bytes = 0;

  constructor(private readonly limit: number) {}

  get(name: string): V | undefined {
    const found = this.kept.get(name);
    if (found === undefined) return undefined;
    this.kept.delete(name);
    this.kept.set(name, found);
    return found.value;
  }

  put(name: string, value: V, bytes: number): void {
    this.delete(name);
    this.kept.set(name, { value, bytes });
    this.bytes += bytes;
    for (const oldest of this.kept.keys()) {
      if (this.bytes <= this.limit || this.kept.size === 1) return;
      this.delete(oldest);
    }
  }

  delete(name: string): void {
    this.bytes -= this.kept.get(name)?.bytes ?? 0;
    this.kept.delete(name);
  }
}
