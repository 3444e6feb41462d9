import { join, resolve } from 'node:path';
import * as z from 'zod';
import type { LogLevel } from '../process/log.js';
import { ConfigError, read, type Environment } from './environment.js';
import {
  databaseUrl,
  dataDir,
  LOCAL_ORIGIN,
  logLevel,
  origin,
  retiredVkeys,
  ROLE_URL,
  snapshotNameFor,
  snapshotTtl,
  snapshotUrl,
  vkeys,
} from './fields.js';

/** The key that an external check trusts: a public key, or the file of its private key. */
export type TrustedKey = { vkeys: string[] } | { name: string; keyFile: string };

export interface FsckConfig {
  /** Null to skip the registry. */
  databaseUrl: string | null;
  logKey: TrustedKey;
  /** Verifier keys that signed earlier checkpoints, which the registry keeps. */
  retiredLogVkeys: string[];
  snapshotKey: TrustedKey;
  /** Null to skip the snapshot, or when it is read over HTTP. */
  snapshotDir: string | null;
  snapshotUrl: string | null;
  snapshotValidForMs: number;
  dataDir: string;
  logLevel: LogLevel;
}

export type FsckHalf = 'registry' | 'snapshot';

/** @param only the half to check; null for both */
export function readFsckConfig(only: FsckHalf | null, env: Environment): FsckConfig {
  const v = read(env, {
    DATABASE_URL: only === 'snapshot' ? databaseUrl('').optional() : databaseUrl(ROLE_URL('fsck')),
    LOG_VKEY: vkeys('log').optional(),
    LOG_RETIRED_VKEYS: retiredVkeys,
    SNAPSHOT_VKEY: vkeys('snapshot').optional(),
    LOG_KEY_FILE: z.string().optional(),
    SNAPSHOT_KEY_FILE: z.string().optional(),
    LOG_ORIGIN: origin.default(LOCAL_ORIGIN),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    SNAPSHOT_URL: snapshotUrl,
    SNAPSHOT_TTL: snapshotTtl,
    LOG_LEVEL: logLevel,
  });
  const trusted = (pinned: string[] | undefined, keyFile: string | undefined, name: string) => {
    if (pinned !== undefined) return { vkeys: pinned };
    return keyFile === undefined ? null : { name, keyFile };
  };
  const logKey = trusted(v.LOG_VKEY, v.LOG_KEY_FILE, v.LOG_ORIGIN);
  const snapshotName = snapshotNameFor(v.LOG_ORIGIN);
  const snapshotKey = trusted(v.SNAPSHOT_VKEY, v.SNAPSHOT_KEY_FILE, snapshotName);
  const pin = (variable: string, which: string): string =>
    `${variable}_VKEY is not set: pin the ${which}'s public key, or name its file in ${variable}_KEY_FILE`;
  if (logKey === null) throw new ConfigError([pin('LOG', 'log')]);
  if (snapshotKey === null && only !== 'registry') {
    throw new ConfigError([pin('SNAPSHOT', 'snapshot')]);
  }
  const url = v.SNAPSHOT_URL ?? null;
  const directory = resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public'));
  return {
    databaseUrl: only === 'snapshot' ? null : (v.DATABASE_URL ?? null),
    logKey,
    retiredLogVkeys: v.LOG_RETIRED_VKEYS ?? [],
    snapshotKey: snapshotKey ?? logKey,
    snapshotDir: only === 'registry' || url !== null ? null : directory,
    snapshotUrl: only === 'registry' ? null : url,
    snapshotValidForMs: v.SNAPSHOT_TTL,
    dataDir: resolve(v.DATA_DIR),
    logLevel: v.LOG_LEVEL,
  };
}
