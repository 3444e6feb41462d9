import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export type { Registry };

/** A plain number, so that an increment on a hot path is cheap. */
export interface Count {
  n: number;
}

/**
 * A counter whose labelled children are plain numbers between scrapes. Finding a child costs more
 * than the increment, so hot paths find it once and keep it.
 */
export class Tally<Label extends string = never> {
  private readonly parts = new Map<string, { labels: Record<Label, string>; count: Count }>();

  constructor(registry: Registry, name: string, help: string, labelNames: readonly Label[] = []) {
    const { parts } = this;
    new Counter({
      name,
      help,
      labelNames: [...labelNames],
      registers: [registry],
      collect() {
        this.reset();
        for (const { labels, count } of parts.values()) this.inc(labels, count.n);
      },
    });
  }

  of(labels: Record<Label, string>): Count {
    const key = JSON.stringify(Object.values(labels));
    let part = this.parts.get(key);
    if (part === undefined) {
      part = { labels, count: { n: 0 } };
      this.parts.set(key, part);
    }
    return part.count;
  }
}

/** Histogram buckets, in seconds. */
export const SECONDS = {
  /** Buckets for operations that take a millisecond when healthy. */
  short: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  /** Buckets for operations that may take minutes. */
  long: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
} as const;

export const distribution = <Label extends string = never>(
  registry: Registry,
  name: string,
  help: string,
  buckets: readonly number[],
  labelNames: readonly Label[] = [],
): Histogram<Label> =>
  new Histogram({
    name,
    help,
    buckets: [...buckets],
    labelNames: [...labelNames],
    registers: [registry],
  });

/** Values that differ in their labels, one value without labels, or null while the value is unknown. */
type Reading = readonly { labels: Record<string, string>; value: number }[] | number | null;

type GaugeRow = [help: string, read: () => Reading | undefined, labelNames?: readonly string[]];

/**
 * Adds gauges that are read at scrape time and absent while their value is unknown: a stale value
 * must not look current. `read` only reads memory.
 */
export function addGauges(registry: Registry, rows: Record<string, GaugeRow>): void {
  for (const [name, [help, read, labelNames = []]] of Object.entries(rows)) {
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        const found = read() ?? [];
        const values = typeof found === 'number' ? [{ labels: {}, value: found }] : found;
        this.reset();
        // `remove` without label values works only for a gauge without labels; `reset` suffices for all
        // other gauges.
        if (values.length === 0 && labelNames.length === 0) this.remove();
        for (const { labels, value } of values) this.set(labels, value);
      },
    });
  }
}
