import { startChild, type Child } from './child.js';
import type { PeerTask } from './peer-process.js';
import type { BenchRegistry } from './registry.js';

export type ProgramName = 'engine' | 'worker' | 'verifier' | 'publisher' | 'facade';

export interface ProgramOptions {
  recentLookupLimit: number;
  /** The queue of engine and workers; without it the queue is in Postgres. */
  redisUrl?: string | undefined;
  /** The directory for a CPU profile, written at exit. */
  profileDir?: string | undefined;
  /** Overrides of the program's environment. */
  env?: Record<string, string> | undefined;
}

/** Starts a program of the service over the registry. */
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
    module: `programs/${name}`,
    env: { LOG_LEVEL: 'warn', ...environments[name], ...env },
    profileDir,
  });
}

/** Starts a server that the service is compared with. */
export const startPeer = (task: PeerTask): Child =>
  startChild({ module: 'bench/harness/peer-process', task });
