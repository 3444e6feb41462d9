/** Keeps what was used last, up to so many bytes: memory stays bounded whatever is walked through. */
export class ByteCache<V> {
  private readonly kept = new Map<string, { value: V; bytes: number }>();
  private bytes = 0;

  constructor(private readonly most: number) {}

  get(name: string): V | undefined {
    const found = this.kept.get(name);
    if (found === undefined) return undefined;
    this.kept.delete(name);
    this.kept.set(name, found);
    return found.value;
  }

  put(name: string, value: V, bytes: number): void {
    this.kept.set(name, { value, bytes });
    this.bytes += bytes;
    for (const [oldest, { bytes: freed }] of this.kept) {
      if (this.bytes <= this.most || this.kept.size === 1) return;
      this.kept.delete(oldest);
      this.bytes -= freed;
    }
  }
}
