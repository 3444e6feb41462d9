import { join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';
import { startChild, type Child } from './child.js';
import type { BenchRegistry } from './registry.js';

export type ProgramName = 'engine' | 'worker' | 'verifier' | 'publisher' | 'facade';

/** The built modules: a process of its own runs no sources. */
export const builtFile = (path: string): string => join(packageRoot, 'dist', `${path}.js`);

export interface ProgramOptions {
  recentLookupLimit: number;
  /** The queue of engine and worker; without it the queue is in Postgres. */
  redisUrl?: string | undefined;
  /** Where a CPU profile goes when it ends; none when not given. */
  profileDir?: string | undefined;
  /** Variables of its own, over those that it is given. */
  env?: Record<string, string> | undefined;
}

/** A real program over the registry of a measurement. */
export function startProgram(
  name: ProgramName,
  registry: BenchRegistry,
  { recentLookupLimit, redisUrl, profileDir, env = {} }: ProgramOptions,
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
    file: builtFile(`programs/${name}`),
    env: { LOG_LEVEL: 'warn', ...environments[name], ...env },
    profileDir,
  });
}
