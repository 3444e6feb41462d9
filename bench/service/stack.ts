import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { logger } from '#runtime/process/log';
import { urlOf, type Child } from './child.js';
import { requireDurable } from './durability.js';
import { startProgram, type ProgramName } from './programs.js';
import { openBenchRegistry, type BenchRegistry } from './registry.js';
import { untilSnapshotIsServed } from './serving.js';

export interface StackOptions {
  /** Without it the queue is in Postgres. */
  redisUrl?: string | undefined;
  /** How many worker processes. */
  workers: number;
  /** Of the snapshot. */
  recentLookupLimit: number;
  /** Each program leaves its CPU profile in a directory of its name below this one. */
  profileDir?: string | undefined;
  /** Variables of single programs. */
  env?: Partial<Record<ProgramName, Record<string, string>>>;
}

/** Everything that serves, each program a process of its own, over one embedded Postgres. */
export interface BenchStack {
  registry: BenchRegistry;
  engineUrl: string;
  publicUrl: string;
  engine: Child;
  workers: Child[];
  verifier: Child;
  publisher: Child;
  facade: Child;
  /** Stops the programs, then Postgres. What they wrote stays in the directory. */
  close(): Promise<void>;
}

/**
 * Brings up the whole service over `dir`, which may hold a registry already, and waits until its
 * facade serves a snapshot.
 *
 * @throws Error when a program does not start, or the database does not keep its word (fsync)
 */
export async function startStack(dir: string, options: StackOptions): Promise<BenchStack> {
  const registry = await openBenchRegistry(dir, logger('bench', 'warn'));
  try {
    const programs = await startPrograms(registry, options);
    const close = async (): Promise<void> => {
      await programs.close();
      await registry.close();
    };
    return { ...programs, close };
  } catch (error) {
    await registry.close();
    throw error;
  }
}

/** The same over a registry that is open already, and stays open when this is closed. */
export async function startPrograms(
  registry: BenchRegistry,
  options: StackOptions,
): Promise<BenchStack> {
  const children: Child[] = [];
  // In reverse, so that nothing is cut off from what it still writes to.
  const close = async (): Promise<void> => {
    for (const child of children.reverse()) await child.stop();
  };
  const start = async (name: ProgramName, more: Record<string, string> = {}): Promise<Child> => {
    const profileDir = options.profileDir && join(options.profileDir, name);
    if (profileDir !== undefined) await mkdir(profileDir, { recursive: true });
    const { recentLookupLimit, redisUrl, env } = options;
    const own = { ...more, ...env?.[name] };
    const child = startProgram(name, registry, {
      recentLookupLimit,
      redisUrl,
      profileDir,
      env: own,
    });
    children.push(child);
    return child;
  };
  try {
    await requireDurable(registry);
    const facade = await start('facade');
    const publisher = await start('publisher');
    const verifier = await start('verifier');
    const workers: Child[] = [];
    for (let i = 0; i < options.workers; i += 1) workers.push(await start('worker'));
    const publicUrl = await urlOf(facade, 'the facade');
    const engine = await start('engine', { PUBLIC_URL: publicUrl });
    const engineUrl = await urlOf(engine, 'the engine');
    await Promise.all([publisher, verifier, ...workers].map((child) => child.ready));
    await untilSnapshotIsServed(publicUrl);
    return { registry, engineUrl, publicUrl, engine, workers, verifier, publisher, facade, close };
  } catch (error) {
    await close();
    throw error;
  }
}
