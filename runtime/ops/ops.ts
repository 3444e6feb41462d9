import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { OpsConfig } from '../config.js';
import type { ProgramContext } from '../process/lifecycle.js';
import { packageRoot } from '../process/package-root.js';
import { openOpsListener } from './listener.js';
import type { Readiness } from './health.js';

/** A program's side of the operations listener. */
export interface Ops {
  /**
   * Registry for the program's metrics; null when no listener is configured and none need be kept.
   */
  registry: Registry | null;
  /** Sets the readiness check. Until then the program reports "starting". */
  readyWhen(find: () => Readiness | Promise<Readiness>): void;
}

/**
 * Opens before slow dependencies, so that a program waiting for its database reports it, and closes
 * last. While draining, it reports not ready.
 */
export async function openOps(
  name: string,
  config: OpsConfig | null,
  { signal, log, onStop }: Pick<ProgramContext, 'signal' | 'log' | 'onStop'>,
): Promise<Ops> {
  if (config === null) return { registry: null, readyWhen: () => undefined };
  const registry = createRegistry(name);
  let find = (): Readiness | Promise<Readiness> => ({
    ready: false,
    details: { status: 'starting' },
  });
  const source = {
    metrics: () => registry.metrics(),
    readiness: async () =>
      signal.aborted ? { ready: false, details: { status: 'stopping' } } : find(),
  };
  const server = await openOpsListener(source, config);
  onStop(() => server.close(0));
  log.info({ ops_url: server.url }, 'operations listener started');
  return { registry, readyWhen: (finder) => void (find = finder) };
}

/** The metrics of one program, which every value has as its label `program`. */
export function createRegistry(program: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ program });
  collectDefaultMetrics({ register: registry });
  const info = new Gauge({
    name: 'svc_build_info',
    help: 'Always 1; the version is in the label',
    labelNames: ['version'],
    registers: [registry],
  });
  const manifest = readFileSync(join(packageRoot, 'package.json'), 'utf8');
  info.set({ version: (JSON.parse(manifest) as { version: string }).version }, 1);
  return registry;
}
