import { join, resolve } from 'node:path';
import * as z from 'zod';
import type { LogLevel } from '../process/log.js';
import {
  type DrainConfig,
  drainOf,
  drainVariables,
  type OpsConfig,
  opsOf,
  opsVariables,
} from './process.js';
import { read, type Environment } from './environment.js';
import {
  dataDir,
  listenAddress,
  logLevel,
  port,
  publicUrl,
  recentLookupLimit,
  snapshotUrl,
  vkeys,
  wholeNumber,
} from './fields.js';

export interface FacadeConfig {
  /** Null when the snapshot is read over HTTP. */
  snapshotDir: string | null;
  snapshotUrl: string | null;
  /** The pinned keys: the current one, and during a rotation the other as well. */
  logVkeys: string[];
  snapshotVkeys: string[];
  bind: string;
  port: number;
  /** Number of processes that share the port. */
  processes: number;
  /** Public base URL of this server; null: links use the Host of the request. */
  publicUrl: string | null;
  recentLookupLimit: number;
  ops: OpsConfig;
  drain: DrainConfig;
  logLevel: LogLevel;
}

/**
 * Names no database, queue or secret, so that a compromised public API server yields none of them.
 */
export function readFacadeConfig(env: Environment): FacadeConfig {
  const v = read(env, {
    LOG_VKEY: vkeys('log'),
    SNAPSHOT_VKEY: vkeys('snapshot'),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    SNAPSHOT_URL: snapshotUrl,
    LISTEN_ADDRESS: listenAddress,
    PUBLIC_PORT: port(8081),
    PUBLIC_PROCESSES: wholeNumber(1, 256, 1),
    PUBLIC_URL: publicUrl.optional(),
    RECENT_LOOKUP_LIMIT: recentLookupLimit,
    ...opsVariables,
    ...drainVariables,
    LOG_LEVEL: logLevel,
  });
  const snapshotUrlGiven = v.SNAPSHOT_URL ?? null;
  return {
    snapshotDir:
      snapshotUrlGiven === null ? resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public')) : null,
    snapshotUrl: snapshotUrlGiven,
    logVkeys: v.LOG_VKEY,
    snapshotVkeys: v.SNAPSHOT_VKEY,
    bind: v.LISTEN_ADDRESS,
    port: v.PUBLIC_PORT,
    processes: v.PUBLIC_PROCESSES,
    publicUrl: v.PUBLIC_URL ?? null,
    recentLookupLimit: v.RECENT_LOOKUP_LIMIT,
    ops: opsOf(v),
    drain: drainOf(v),
    logLevel: v.LOG_LEVEL,
  };
}
