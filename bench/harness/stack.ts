import type { ProgramName } from '#programs/stack';
import { type Child, startChild, urlOf } from './child.js';
import type { Cleanup } from './cleanup.js';
import type { Watched } from './cpu.js';
import { untilReady } from './public-api.js';
import { type BenchRegistry, openBenchRegistry } from './registry.js';
import type { RunContext } from './scenario.js';

/** The Redis with the queue of engine and workers; without `redis` the queue is in Postgres. */
type Queue = Partial<Pick<RunContext, 'redis'>>;

/** The whole service, each program in its own process, over one embedded Postgres. */
export type BenchStack = Awaited<ReturnType<typeof startPrograms>>;

/** Starts the service over `dir`, which may hold a registry, and waits until lookups are answered. */
export async function startStack(dir: string, queue: Queue, cleanup: Cleanup): Promise<BenchStack> {
  return startPrograms(await openBenchRegistry(dir, cleanup), queue, cleanup);
}

/** Like {@link startStack}, over an open registry. */
export async function startPrograms(registry: BenchRegistry, { redis }: Queue, cleanup: Cleanup) {
  // The cleanup stops the programs in reverse order, so that each stops before the programs it depends on.
  const start = (name: ProgramName, env: Record<string, string> = {}): Child =>
    startProgram(name, registry, cleanup, { ...(redis && { REDIS_URL: redis.url }), ...env });
  const facade = start('facade');
  const publisher = start('publisher');
  const verifier = start('verifier');
  const worker = start('worker');
  const publicUrl = await urlOf(facade);
  const engine = start('engine', { PUBLIC_URL: publicUrl });
  const engineUrl = await urlOf(engine);
  await Promise.all([publisher, verifier, worker].map(({ ready }) => ready));
  await untilReady(publicUrl);
  const programs = { engine, worker, verifier, publisher, facade };
  const watched: Watched = {
    ...Object.fromEntries(Object.entries(programs).map(([name, { pid }]) => [name, pid])),
    Postgres: registry.postgresPid,
    ...(redis && { Redis: redis.pid }),
  };
  return { registry, engineUrl, publicUrl, programs, watched };
}

export function startProgram(
  name: ProgramName,
  registry: BenchRegistry,
  cleanup: Cleanup,
  env: Record<string, string> = {},
): Child {
  const program = startChild({
    module: `programs/${name}`,
    env: { ...registry.env[name], ...env },
  });
  cleanup.push(() => program.stop());
  return program;
}
