import { type Child, startChild, urlOf } from './child.js';
import type { Cleanup } from './cleanup.js';
import type { Watched } from './cpu.js';
import { untilReady } from './public-api.js';
import { type BenchRegistry, openBenchRegistry } from './registry.js';

interface StackOptions {
  recentLookupLimit?: number;
  /** The queue of engine and workers; without it the queue is in Postgres. */
  redis?: { url: string; pid: number } | undefined;
  engineEnv?: Record<string, string>;
}

/** The whole service, each program in its own process, over one embedded Postgres. */
export interface BenchStack {
  registry: BenchRegistry;
  engineUrl: string;
  publicUrl: string;
  programs: Record<ProgramName, Child>;
  /** The programs, Postgres, and Redis if the queue is there. */
  watched: Watched;
}

/** Starts the service over `dir`, which may hold a registry, and waits until lookups are answered. */
export async function startStack(
  dir: string,
  options: StackOptions,
  cleanup: Cleanup,
): Promise<BenchStack> {
  return startPrograms(await openBenchRegistry(dir, cleanup), options, cleanup);
}

/** Like {@link startStack}, over an open registry. */
export async function startPrograms(
  registry: BenchRegistry,
  { recentLookupLimit = 100_000, redis, engineEnv = {} }: StackOptions,
  cleanup: Cleanup,
): Promise<BenchStack> {
  // Stopped in reverse order, so that programs stop before the programs they depend on.
  const start = (name: ProgramName, env?: Record<string, string>): Child =>
    startProgram(name, registry, { recentLookupLimit, redisUrl: redis?.url, env }, cleanup);
  const facade = start('facade');
  const publisher = start('publisher');
  const verifier = start('verifier');
  const worker = start('worker');
  const publicUrl = await urlOf(facade);
  const engine = start('engine', { PUBLIC_URL: publicUrl, ...engineEnv });
  const engineUrl = await urlOf(engine);
  await Promise.all([publisher, verifier, worker].map(({ ready }) => ready));
  await untilReady(publicUrl);
  const programs = { engine, worker, verifier, publisher, facade };
  const watched = {
    ...Object.fromEntries(Object.entries(programs).map(([name, { pid }]) => [name, pid])),
    Postgres: registry.postgresPid,
    ...(redis && { Redis: redis.pid }),
  };
  return { registry, engineUrl, publicUrl, programs, watched };
}

export type ProgramName = 'engine' | 'worker' | 'verifier' | 'publisher' | 'facade';

/** Starts a program of the service over the registry. */
export function startProgram(
  name: ProgramName,
  registry: BenchRegistry,
  options: {
    recentLookupLimit: number;
    redisUrl?: string | undefined;
    env?: Record<string, string> | undefined;
  },
  cleanup: Cleanup,
): Child {
  const { recentLookupLimit, redisUrl, env = {} } = options;
  const queue: Record<string, string> = redisUrl === undefined ? {} : { REDIS_URL: redisUrl };
  const snapshot = {
    SNAPSHOT_DIR: registry.snapshotDir,
    RECENT_LOOKUP_LIMIT: String(recentLookupLimit),
  };
  const log = { LOG_ORIGIN: registry.origin, EMBEDDED_DATABASE: 'yes' };
  const environments: Record<ProgramName, Record<string, string>> = {
    engine: {
      ...queue,
      DATABASE_URL: registry.roleUrl('svc_engine'),
      ENGINE_PORT: '0',
      // Higher than any load of the bench. Requests are still counted in Redis.
      RATE_LIMIT: '1000000',
    },
    worker: {
      ...queue,
      DATABASE_URL: registry.roleUrl('svc_worker'),
      AEP_KEY_FILE: registry.keyFiles.aep,
    },
    verifier: {
      DATABASE_URL: registry.roleUrl('svc_verifier'),
      VERIFIER_KEY_FILE: registry.keyFiles.verifier,
      ...log,
    },
    publisher: {
      ...snapshot,
      DATABASE_URL: registry.roleUrl('svc_publisher'),
      LOG_KEY_FILE: registry.keyFiles.log,
      ...log,
    },
    facade: {
      ...snapshot,
      PINS_FILE: registry.pinsFile,
      PUBLIC_PORT: '0',
    },
  };
  const program = startChild({
    module: `programs/${name}`,
    env: { LOG_LEVEL: 'warn', ...environments[name], ...env },
  });
  cleanup.push(() => program.stop());
  return program;
}
