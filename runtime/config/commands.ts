import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import * as z from 'zod';
import { ConfigError, type Environment, read } from './environment.js';
import {
  databaseUrl,
  dataDir,
  LOCAL_ORIGIN,
  logLevel,
  origin,
  originFor,
  OWNER_URL,
  publicUrl,
  redisUrl,
  required,
  retiredVkeys,
  ROLE_URL,
  snapshotNameFor,
  snapshotTtl,
  snapshotUrl,
  vkeys,
} from './fields.js';

export type AdminConfig = ReturnType<typeof readAdminConfig>;

export function readAdminConfig(role: 'admin' | 'erase', env: Environment) {
  const v = read(env, { DATABASE_URL: databaseUrl(ROLE_URL(role)), LOG_LEVEL: logLevel });
  return { databaseUrl: v.DATABASE_URL, logLevel: v.LOG_LEVEL };
}

export type StatusConfig = ReturnType<typeof readStatusConfig>;

export function readStatusConfig(env: Environment) {
  const v = read(env, {
    PUBLIC_URL: z
      .string()
      .transform((text) => text.split(',').map((one) => one.trim()))
      .pipe(z.array(publicUrl))
      .optional(),
    DATA_DIR: dataDir,
  });
  /** `publicUrls` are the public API URLs to check. */
  return { publicUrls: v.PUBLIC_URL ?? [], dataDir: v.DATA_DIR };
}

/** The key that an external check trusts: a public key, or the file of its private key. */
export type TrustedKey = { vkeys: string[] } | { name: string; keyFile: string };

export type FsckHalf = 'registry' | 'snapshot';
export type FsckConfig = ReturnType<typeof readFsckConfig>;

function trustedKey(
  pinned: string[] | undefined,
  keyFile: string | undefined,
  name: string,
): TrustedKey | null {
  if (pinned !== undefined) return { vkeys: pinned };
  return keyFile === undefined ? null : { name, keyFile };
}

const missingKey = (variable: string, which: string): ConfigError =>
  new ConfigError([
    `${variable}_VKEY is not set: pin the ${which}'s public key, or name its file in ${variable}_KEY_FILE`,
  ]);

/** @param only the half to check; null for both */
export function readFsckConfig(only: FsckHalf | null, env: Environment) {
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
  const snapshotName = snapshotNameFor(v.LOG_ORIGIN);
  const logKey = trustedKey(v.LOG_VKEY, v.LOG_KEY_FILE, v.LOG_ORIGIN);
  const snapshotKey = trustedKey(v.SNAPSHOT_VKEY, v.SNAPSHOT_KEY_FILE, snapshotName);
  if (logKey === null) throw missingKey('LOG', 'log');
  if (snapshotKey === null && only !== 'registry') throw missingKey('SNAPSHOT', 'snapshot');
  const directory = resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public'));
  return {
    /** Null to skip the registry. */
    databaseUrl: only === 'snapshot' ? null : (v.DATABASE_URL ?? null),
    logKey,
    /** Verifier keys that signed earlier checkpoints, which the registry keeps. */
    retiredLogVkeys: v.LOG_RETIRED_VKEYS,
    snapshotKey: snapshotKey ?? logKey,
    /** Null to skip the snapshot, or when it is read over HTTP. */
    snapshotDir: only === 'registry' || v.SNAPSHOT_URL !== null ? null : directory,
    snapshotUrl: only === 'registry' ? null : v.SNAPSHOT_URL,
    snapshotValidForMs: v.SNAPSHOT_TTL,
    dataDir: v.DATA_DIR,
    logLevel: v.LOG_LEVEL,
  };
}

export type SetupConfig = ReturnType<typeof readSetupConfig>;

export function readSetupConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('admin')),
    AEP_PUBLIC_KEY_FILE: required('name a PEM file with the public key of the key that signs AEPs'),
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    aepPublicKeyFile: resolve(v.AEP_PUBLIC_KEY_FILE),
    logLevel: v.LOG_LEVEL,
  };
}

export type SecretsConfig = ReturnType<typeof readSecretsConfig>;

const hostAndPort = (fallback: string): z.ZodType<string> =>
  z
    .string()
    .regex(/^[A-Za-z0-9.-]+:\d{1,5}$/, 'must be host:port')
    .default(fallback);

export function readSecretsConfig(env: Environment) {
  const v = read(env, {
    SECRETS_DIR: z.string().default(join('deploy', 'secrets')),
    LOG_ORIGIN: origin.optional(),
    DATABASE_HOST: hostAndPort('postgres:5432'),
    QUEUE_HOST: hostAndPort('valkey:6379'),
    DATABASE_NAME: z
      .string()
      .regex(/^[a-z][a-z0-9_]{0,62}$/, 'must be a plain lower-case name')
      .default('svc'),
  });
  const logOrigin = originFor(v.LOG_ORIGIN, false);
  return {
    /** Directory for the created files. */
    directory: resolve(v.SECRETS_DIR),
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    /** host:port, as the programs reach it. */
    databaseHost: v.DATABASE_HOST,
    queueHost: v.QUEUE_HOST,
    database: v.DATABASE_NAME,
  };
}

export type MigrateConfig = ReturnType<typeof readMigrateConfig>;

export function readMigrateConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(OWNER_URL),
    REDIS_URL: redisUrl,
    ROLE_URL_FILES: roleLogins,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL,
    /** Roles that may log in afterwards; the others stay unchanged. */
    roleLogins: v.ROLE_URL_FILES,
    logLevel: v.LOG_LEVEL,
  };
}

/** A program's database login, as in its `DATABASE_URL_FILE`. */
export interface RoleLogin {
  role: string;
  password: string;
}

function loginIn(file: string): RoleLogin | string {
  let content;
  try {
    content = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    return `cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown'})`;
  }
  const url = /^postgres(ql)?:/.test(content) && URL.canParse(content) ? new URL(content) : null;
  if (url === null || url.username === '' || url.password === '') {
    return 'does not hold a URL like postgres://role:password@host:5432/database';
  }
  return { role: decodeURIComponent(url.username), password: decodeURIComponent(url.password) };
}

/** Files with programs' database URLs, separated by commas; none when unset. */
export const roleLogins = z
  .string()
  .default('')
  .transform((list, context) =>
    list
      .split(',')
      .map((file) => file.trim())
      .filter((file) => file !== '')
      .flatMap((file) => {
        const found = loginIn(file);
        if (typeof found !== 'string') return [found];
        context.addIssue({ code: 'custom', message: `names ${file}, which ${found}` });
        return [];
      }),
  );
