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
  databaseUrl,
  dataDir,
  listenAddress,
  logLevel,
  maxQueuedAdmissions,
  origin,
  originFor,
  OWNER_URL,
  paused,
  port,
  publicUrl,
  rateLimit,
  recentLookupLimit,
  redisUrl,
  retiredVkeys,
  snapshotNameFor,
  snapshotTtl,
} from './fields.js';

export interface StartConfig {
  /** The owner's connection; null starts the embedded database. */
  databaseUrl: string | null;
  redisUrl: string | null;
  dataDir: string;
  bind: string;
  enginePort: number;
  publicPort: number;
  /** The public API's base URL for clients; null: the address on which it listens. */
  publicUrl: string | null;
  rateLimit: number;
  maxQueuedAdmissions: number;
  snapshotDir: string;
  aepKeyFile: string;
  logKeyFile: string;
  snapshotKeyFile: string;
  retiredLogVkeys: string[];
  retiredSnapshotVkeys: string[];
  logOrigin: string;
  /** The snapshot key's name. */
  snapshotName: string;
  /** A file or URL with a checkpoint of this log that was stored elsewhere. */
  lastCheckpoint: string | null;
  snapshotValidForMs: number;
  recentLookupLimit: number;
  admissionsPaused: boolean;
  ops: OpsConfig;
  /** Shutdown of each program; they stop one after the other. */
  drain: DrainConfig;
  logLevel: LogLevel;
}

export function readStartConfig(env: Environment): StartConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(OWNER_URL).optional(),
    REDIS_URL: redisUrl,
    DATA_DIR: dataDir,
    LISTEN_ADDRESS: listenAddress,
    ENGINE_PORT: port(8080),
    PUBLIC_PORT: port(8081),
    PUBLIC_URL: publicUrl.optional(),
    RATE_LIMIT: rateLimit,
    MAX_QUEUED_ADMISSIONS: maxQueuedAdmissions,
    SNAPSHOT_DIR: z.string().optional(),
    TRUSTED_CHECKPOINT: z.string().optional(),
    AEP_KEY_FILE: z.string().optional(),
    LOG_KEY_FILE: z.string().optional(),
    SNAPSHOT_KEY_FILE: z.string().optional(),
    LOG_RETIRED_VKEYS: retiredVkeys,
    SNAPSHOT_RETIRED_VKEYS: retiredVkeys,
    LOG_ORIGIN: origin.optional(),
    SNAPSHOT_TTL: snapshotTtl,
    RECENT_LOOKUP_LIMIT: recentLookupLimit,
    ADMISSIONS_PAUSED: paused,
    ...opsVariables,
    ...drainVariables,
    LOG_LEVEL: logLevel,
  });
  const logOrigin = originFor(v.LOG_ORIGIN, v.DATABASE_URL === undefined);
  const data = resolve(v.DATA_DIR);
  const file = (given: string | undefined, name: string): string =>
    resolve(given ?? join(data, name));
  return {
    databaseUrl: v.DATABASE_URL ?? null,
    redisUrl: v.REDIS_URL ?? null,
    dataDir: data,
    bind: v.LISTEN_ADDRESS,
    enginePort: v.ENGINE_PORT,
    publicPort: v.PUBLIC_PORT,
    publicUrl: v.PUBLIC_URL ?? null,
    rateLimit: v.RATE_LIMIT,
    maxQueuedAdmissions: v.MAX_QUEUED_ADMISSIONS,
    snapshotDir: file(v.SNAPSHOT_DIR, 'public'),
    aepKeyFile: file(v.AEP_KEY_FILE, 'aep-key.pem'),
    logKeyFile: file(v.LOG_KEY_FILE, 'log-key.pem'),
    snapshotKeyFile: file(v.SNAPSHOT_KEY_FILE, 'snapshot-key.pem'),
    retiredLogVkeys: v.LOG_RETIRED_VKEYS ?? [],
    retiredSnapshotVkeys: v.SNAPSHOT_RETIRED_VKEYS ?? [],
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    lastCheckpoint: v.TRUSTED_CHECKPOINT ?? null,
    snapshotValidForMs: v.SNAPSHOT_TTL,
    recentLookupLimit: v.RECENT_LOOKUP_LIMIT,
    admissionsPaused: v.ADMISSIONS_PAUSED === 'true',
    ops: opsOf(v),
    drain: drainOf(v),
    logLevel: v.LOG_LEVEL,
  };
}

/** A separate stack beside a running one: it ignores every variable but the log level. */
export function readDemoConfig(dataDir: string, env: Environment): StartConfig {
  return readStartConfig({
    DATA_DIR: dataDir,
    ENGINE_PORT: '0',
    PUBLIC_PORT: '0',
    LOG_LEVEL: env['LOG_LEVEL'] || 'error',
  });
}
