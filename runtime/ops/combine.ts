import { AggregatorRegistry } from 'prom-client';
import { valuesOf } from './registry.js';
import type { MetricOfMoment } from './health.js';

/** Merges the metrics of several programs; the label `program` keeps their values apart. */
export function besideEachOther(
  programs: readonly (readonly MetricOfMoment[])[],
): MetricOfMoment[] {
  const byName = new Map<string, MetricOfMoment>();
  for (const metric of programs.flat()) {
    const known = byName.get(metric.name);
    const values = known === undefined ? metric.values : [...known.values, ...metric.values];
    byName.set(metric.name, { ...metric, values });
  }
  return [...byName.values()];
}

/** Aggregates the metrics of several processes of one program. */
export async function asOne(
  processes: readonly (readonly MetricOfMoment[])[],
): Promise<MetricOfMoment[]> {
  return valuesOf(AggregatorRegistry.aggregate(processes.map((metrics) => [...metrics])));
}

/** The metrics that keep counting after their process has exited. Gauges end with the process. */
export function countersOf(metrics: readonly MetricOfMoment[]): MetricOfMoment[] {
  return metrics.filter(({ type }) => ['counter', 'histogram'].includes(String(type)));
}
