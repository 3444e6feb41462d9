import { gauge } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';

// Apart from the database's readings: the public API server must not load a database driver.

/** A gauge; its value is null while unknown. `together` combines several processes. */
type GaugeRow = [
  name: string,
  help: string,
  read: () => number | null | undefined,
  together?: 'min',
];

export function addGauges(registry: Registry, rows: readonly GaugeRow[]): void {
  for (const [name, help, read, together] of rows) {
    gauge(registry, { name, help, ...(together && { together }) }, () => read() ?? null);
  }
}
