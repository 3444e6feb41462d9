import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** A plain number, so that an increment on a hot path costs nothing else. */
export interface Count {
  n: number;
}

interface Naming {
  name: string;
  help: string;
}

/**
 * A counter whose children are plain numbers until a scrape. The lookup of a child costs more than
 * the increment, so hot paths look their child up once.
 */
export class Tally<Label extends string = never> {
  private readonly parts = new Map<string, { labels: Record<Label, string>; count: Count }>();

  constructor(registry: Registry, naming: Naming, labelNames: readonly Label[] = []) {
    const { parts } = this;
    new Counter({
      ...naming,
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
  /** For operations that take a millisecond when healthy. */
  short: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  /** For operations that may take minutes. */
  long: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
} as const;

export function distribution<Label extends string = never>(
  registry: Registry,
  naming: Naming,
  buckets: readonly number[],
  labelNames: readonly Label[] = [],
): Histogram<Label> {
  return new Histogram({
    ...naming,
    buckets: [...buckets],
    labelNames: [...labelNames],
    registers: [registry],
  });
}

/** `together` combines the values of several processes. */
type GaugeRow = [
  name: string,
  help: string,
  read: () => number | null | undefined,
  together?: 'min',
];

/**
 * Adds gauges that are read at scrape time and absent while their value is unknown: a stale value
 * must not look current. `read` only reads memory.
 */
export function addGauges(registry: Registry, rows: readonly GaugeRow[]): void {
  for (const [name, help, read, together = 'max'] of rows) {
    new Gauge({
      name,
      help,
      registers: [registry],
      aggregator: together,
      collect() {
        const value = read() ?? null;
        if (value === null) this.remove();
        else this.set(value);
      },
    });
  }
}

/** Like `addGauges`, for several values that differ in their labels. */
export function gauges<Label extends string>(
  registry: Registry,
  naming: Naming,
  labelNames: readonly Label[],
  find: () => readonly { labels: Record<Label, string>; value: number }[],
): void {
  new Gauge({
    ...naming,
    labelNames: [...labelNames],
    registers: [registry],
    aggregator: 'max',
    collect() {
      this.reset();
      for (const { labels, value } of find()) this.set(labels as never, value);
    },
  });
}
