import { type Child, startChild, urlOf } from './child.js';
import type { Watched } from './cpu.js';
import type { PeerTask } from './peer-process.js';
import { untilReady } from './public-api.js';
import { type BenchRegistry, openBenchRegistry } from './registry.js';

interface StackOptions extends Partial<Pick<ProgramOptions, 'recentLookupLimit' | 'redisUrl'>> {
  engineEnv?: Record<string, string>;
}

/** The whole service, each program in its own process, over one embedded Postgres. */
export interface BenchStack {
  registry: BenchRegistry;
  engineUrl: string;
  publicUrl: string;
  programs: Record<ProgramName, Child>;
  /** Stops the programs, then Postgres if the stack started it. Data stays in the directory. */
  close(): Promise<void>;
}

/** An engine's rate limit that no load here reaches. Requests are still counted in Redis. */
export const UNLIMITED = { RATE_LIMIT: '1000000' } as const;

/** Starts the service over `dir`, which may hold a registry, and waits until lookups are answered. */
export async function startStack(dir: string, options: StackOptions): Promise<BenchStack> {
  const registry = await openBenchRegistry(dir);
  try {
    const stack = await startPrograms(registry, options);
    const close = async (): Promise<void> => {
      await stack.close();
      await registry.close();
    };
    return { ...stack, close };
  } catch (error) {
    await registry.close();
    throw error;
  }
}

/** {@link startStack} over an open registry, which stays open when the stack closes. */
export async function startPrograms(
  registry: BenchRegistry,
  { recentLookupLimit = 100_000, redisUrl, engineEnv = {} }: StackOptions,
): Promise<BenchStack> {
  const started: Child[] = [];
  // In reverse, so that no program loses what it still writes to.
  const close = async (): Promise<void> => {
    for (const child of started.reverse()) await child.stop();
  };
  const start = (name: ProgramName, env?: Record<string, string>): Child => {
    const child = startProgram(name, registry, { recentLookupLimit, redisUrl, env });
    started.push(child);
    return child;
  };
  try {
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
    return { registry, engineUrl, publicUrl, programs, close };
  } catch (error) {
    await close();
    throw error;
  }
}

export function watchedOf({ programs, registry }: BenchStack, redisPid: number): Watched {
  return {
    ...Object.fromEntries(Object.entries(programs).map(([name, { pid }]) => [name, [pid]])),
    Postgres: [registry.postgresPid],
    Redis: [redisPid],
  };
}

export type ProgramName = 'engine' | 'worker' | 'verifier' | 'publisher' | 'facade';

export interface ProgramOptions {
  recentLookupLimit: number;
  /** The queue of engine and workers; without it the queue is in Postgres. */
  redisUrl?: string | undefined;
  env?: Record<string, string> | undefined;
}

/** Starts a program of the service over the registry. */
export function startProgram(
  name: ProgramName,
  registry: BenchRegistry,
  { recentLookupLimit, redisUrl, env = {} }: ProgramOptions,
): Child {
  const queue: Record<string, string> = redisUrl === undefined ? {} : { REDIS_URL: redisUrl };
  const snapshot = {
    SNAPSHOT_DIR: registry.snapshotDir,
    RECENT_LOOKUP_LIMIT: String(recentLookupLimit),
  };
  const environments: Record<ProgramName, Record<string, string>> = {
    engine: {
      ...queue,
      DATABASE_URL: registry.roleUrl('svc_engine'),
      ENGINE_PORT: '0',
      LOG_VKEY: registry.vkeys.log,
    },
    worker: {
      ...queue,
      DATABASE_URL: registry.roleUrl('svc_worker'),
      AEP_KEY_FILE: registry.keyFiles.aep,
    },
    verifier: { DATABASE_URL: registry.roleUrl('svc_verifier') },
    publisher: {
      ...snapshot,
      DATABASE_URL: registry.roleUrl('svc_publisher'),
      LOG_KEY_FILE: registry.keyFiles.log,
      SNAPSHOT_KEY_FILE: registry.keyFiles.snapshot,
      LOG_ORIGIN: registry.origin,
      EMBEDDED_DATABASE: 'yes',
    },
    facade: {
      ...snapshot,
      LOG_VKEY: registry.vkeys.log,
      SNAPSHOT_VKEY: registry.vkeys.snapshot,
      PUBLIC_PORT: '0',
    },
  };
  return startChild({
    module: `programs/${name}`,
    env: { LOG_LEVEL: 'warn', ...environments[name], ...env },
  });
}

/** Starts a server that the service is compared with. */
export const startPeer = (task: PeerTask): Child =>
  startChild({ module: 'bench/harness/peer-process', task });
