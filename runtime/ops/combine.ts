import { AggregatorRegistry } from 'prom-client';
import { valuesOf } from './registry.js';
import type { MetricOfMoment } from './health.js';

/** Metrics of several programs beside each other: their values differ in the label `program`. */
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

/** Metrics of several processes of one program as if they were one process. */
export async function asOne(
  processes: readonly (readonly MetricOfMoment[])[],
): Promise<MetricOfMoment[]> {
  return valuesOf(AggregatorRegistry.aggregate(processes.map((metrics) => [...metrics])));
}

/** What goes on counting after its process has ended; a gauge ends with it. */
export function countersOf(metrics: readonly MetricOfMoment[]): MetricOfMoment[] {
  return metrics.filter(({ type }) => ['counter', 'histogram'].includes(String(type)));
}
