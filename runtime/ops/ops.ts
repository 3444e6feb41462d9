import type { OpsConfig } from '../config/process.js';
import type { ProgramContext } from '../process/lifecycle.js';
import { openOpsListener } from './listener.js';
import { answerStarter } from './over-ipc.js';
import { createRegistry, valuesOf, type Registry } from './registry.js';
import type { OpsSource, Readiness } from './health.js';

/** What a program has to do with its operations listener. */
export interface Ops {
  /** Where its metrics go; null when nobody asks for any, and then none need be kept. */
  registry: Registry | null;
  /** From now on this says whether it can do its work. Before, it is starting. */
  readyWhen(find: () => Readiness | Promise<Readiness>): void;
}

/**
 * Opened before anything that may take its time, so that a program which waits for its database
 * says that it does; closed after everything else. While it drains it is not ready.
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
    says: { status: 'starting' },
  });
  await serveOps(config, program, {
    metrics: () => valuesOf(registry),
    readiness: async () =>
      program.signal.aborted ? { ready: false, says: { status: 'stopping' } } : find(),
  });
  return { registry, readyWhen: (finder) => void (find = finder) };
}

/** Answers for a source, by a listener or to the program that started this one. */
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
  log.info({ ops_url: server.url }, 'the operations listener is open');
}
