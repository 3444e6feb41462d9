import type { OpsConfig } from '../config.js';
import type { ProgramContext } from '../process/lifecycle.js';
import { openOpsListener } from './listener.js';
import { answerStarter } from './over-ipc.js';
import { createRegistry, valuesOf, type Registry } from './registry.js';
import type { OpsSource, Readiness } from './health.js';

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
  config: OpsConfig,
  program: Pick<ProgramContext, 'signal' | 'log' | 'onStop'>,
): Promise<Ops> {
  if (config.kind === 'none') return { registry: null, readyWhen: () => undefined };
  const registry = createRegistry(name);
  let find = (): Readiness | Promise<Readiness> => ({
    ready: false,
    details: { status: 'starting' },
  });
  await serveOps(config, program, {
    metrics: () => valuesOf(registry),
    readiness: async () =>
      program.signal.aborted ? { ready: false, details: { status: 'stopping' } } : find(),
  });
  return { registry, readyWhen: (finder) => void (find = finder) };
}

/** Serves a source on a listener, or over IPC to the parent process. */
export async function serveOps(
  config: OpsConfig,
  { log, onStop }: Pick<ProgramContext, 'log' | 'onStop'>,
  source: OpsSource,
): Promise<void> {
  if (config.kind === 'none') return;
  if (config.kind === 'starter') {
    onStop(answerStarter(source));
    return;
  }
  const { bind: host, port } = config;
  const server = await openOpsListener(source, { host, port });
  onStop(() => server.close(0));
  log.info({ ops_url: server.url }, 'operations listener started');
}
