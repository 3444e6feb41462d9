import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { urlOf, type Child } from './child.js';
import type { Watched } from './cpu.js';
import { startProgram, type ProgramName, type ProgramOptions } from './programs.js';
import { untilReady } from './public-api.js';
import { openBenchRegistry, type BenchRegistry } from './registry.js';

export interface StackOptions extends Partial<
  Pick<ProgramOptions, 'recentLookupLimit' | 'redisUrl' | 'profileDir'>
> {
  /** Overrides of the engine's environment. */
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
  { recentLookupLimit = 100_000, redisUrl, profileDir, engineEnv = {} }: StackOptions,
): Promise<BenchStack> {
  const started: Child[] = [];
  // In reverse, so that no program loses what it still writes to.
  const close = async (): Promise<void> => {
    for (const child of started.reverse()) await child.stop();
  };
  const start = async (name: ProgramName, env?: Record<string, string>): Promise<Child> => {
    const own = profileDir && join(profileDir, name);
    if (own !== undefined) await mkdir(own, { recursive: true });
    const options = { recentLookupLimit, redisUrl, profileDir: own, env };
    const child = startProgram(name, registry, options);
    started.push(child);
    return child;
  };
  try {
    const facade = await start('facade');
    const publisher = await start('publisher');
    const verifier = await start('verifier');
    const worker = await start('worker');
    const publicUrl = await urlOf(facade);
    const engine = await start('engine', { PUBLIC_URL: publicUrl, ...engineEnv });
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

/** The processes of a stack, for CPU figures. */
export function watchedOf({ programs, registry }: BenchStack, redisPid: number): Watched {
  return {
    ...Object.fromEntries(Object.entries(programs).map(([name, { pid }]) => [name, [pid]])),
    Postgres: [registry.postgresPid],
    Redis: [redisPid],
  };
}
