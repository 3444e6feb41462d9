import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { AggregatorRegistry, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { packageRoot } from '../process/package-root.js';
import type { MetricOfMoment } from './health.js';

export type { Registry };

/**
 * The metrics of one program. Every value has the label `program`, so that one document can hold
 * several programs.
 */
export function createRegistry(program: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ program });
  collectDefaultMetrics({ register: registry });
  const info = new Gauge({
    name: 'svc_build_info',
    help: 'Always 1; the version is in the label',
    labelNames: ['version'],
    registers: [registry],
    aggregator: 'first',
  });
  info.set({ version: version() }, 1);
  return registry;
}

function version(): string {
  const text = readFileSync(join(packageRoot, 'package.json'), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

export async function valuesOf(registry: Registry): Promise<MetricOfMoment[]> {
  return await registry.getMetricsAsJSON();
}

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

/** The Prometheus text format. */
export async function exposition(metrics: readonly MetricOfMoment[]): Promise<string> {
  const document = new Registry();
  for (const metric of metrics) {
    // Text output only needs the metric's values; the types require a complete one.
    const holder = Object.assign({ get: () => metric }, metric);
    document.registerMetric(holder as unknown as Parameters<Registry['registerMetric']>[0]);
  }
  return document.metrics();
}

export const EXPOSITION_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;
