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
  databaseReadUrl,
  databaseUrl,
  dataDir,
  keyFile,
  logLevel,
  origin,
  originFor,
  recentLookupLimit,
  retiredVkeys,
  ROLE_URL,
  snapshotNameFor,
  snapshotTtl,
} from './fields.js';

export interface PublisherConfig {
  databaseUrl: string;
  /** A streaming replica, for every read that does not need the primary. */
  databaseReadUrl: string | null;
  logKeyFile: string;
  snapshotKeyFile: string;
  /** Verifier keys that signed before the keys in these files. */
  retiredLogVkeys: string[];
  retiredSnapshotVkeys: string[];
  /** The log key's name and the checkpoints' first line. */
  logOrigin: string;
  /** The snapshot key's name. */
  snapshotName: string;
  snapshotDir: string;
  /** A file or URL with a checkpoint of this log that was stored elsewhere. */
  lastCheckpoint: string | null;
  snapshotValidForMs: number;
  /** Generic lookups search this many of the newest proofs. */
  recentLookupLimit: number;
  ops: OpsConfig;
  drain: DrainConfig;
  logLevel: LogLevel;
}

export function readPublisherConfig(env: Environment): PublisherConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('publisher')),
    DATABASE_READ_URL: databaseReadUrl,
    LOG_KEY_FILE: keyFile('key that signs checkpoints'),
    SNAPSHOT_KEY_FILE: keyFile('key that signs snapshots'),
    LOG_RETIRED_VKEYS: retiredVkeys,
    SNAPSHOT_RETIRED_VKEYS: retiredVkeys,
    LOG_ORIGIN: origin.optional(),
    // Set by `start` for its children only: the database is the embedded one.
    EMBEDDED_DATABASE: z.literal('yes').optional(),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    TRUSTED_CHECKPOINT: z.string().optional(),
    SNAPSHOT_TTL: snapshotTtl,
    RECENT_LOOKUP_LIMIT: recentLookupLimit,
    ...opsVariables,
    ...drainVariables,
    LOG_LEVEL: logLevel,
  });
  const logOrigin = originFor(v.LOG_ORIGIN, v.EMBEDDED_DATABASE === 'yes');
  return {
    databaseUrl: v.DATABASE_URL,
    databaseReadUrl: v.DATABASE_READ_URL ?? null,
    logKeyFile: v.LOG_KEY_FILE,
    snapshotKeyFile: v.SNAPSHOT_KEY_FILE,
    retiredLogVkeys: v.LOG_RETIRED_VKEYS ?? [],
    retiredSnapshotVkeys: v.SNAPSHOT_RETIRED_VKEYS ?? [],
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    snapshotDir: resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public')),
    lastCheckpoint: v.TRUSTED_CHECKPOINT ?? null,
    snapshotValidForMs: v.SNAPSHOT_TTL,
    recentLookupLimit: v.RECENT_LOOKUP_LIMIT,
    ops: opsOf(v),
    drain: drainOf(v),
    logLevel: v.LOG_LEVEL,
  };
}
