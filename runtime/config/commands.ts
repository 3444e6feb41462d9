import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import * as z from 'zod';
import { ConfigError, type Environment, read } from './environment.js';
import {
  anyPublicUrl,
  databaseUrl,
  dataDir,
  LOCAL_ORIGIN,
  logLevel,
  origin,
  originFor,
  OWNER_URL,
  required,
  retiredVkeys,
  ROLE_URL,
  snapshotDir,
  snapshotNameFor,
  snapshotTtl,
  snapshotUrl,
  vkeys,
} from './fields.js';

export const readAdminConfig = (role: 'admin' | 'erase', env: Environment) =>
  read(env, { DATABASE_URL: databaseUrl(ROLE_URL(role)), LOG_LEVEL: logLevel });

export type StatusConfig = ReturnType<typeof readStatusConfig>;

export function readStatusConfig(env: Environment) {
  const v = read(env, {
    PUBLIC_URL: z
      .string()
      .transform((text) => text.split(',').map((one) => one.trim()))
      .pipe(z.array(anyPublicUrl))
      .optional(),
    DATA_DIR: dataDir,
  });
  /** `publicUrls` are the public API URLs to check. */
  return { publicUrls: v.publicUrl ?? [], dataDir: v.dataDir };
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

export const fsckSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('fsck')),
  LOG_VKEY: vkeys('log').optional(),
  LOG_RETIRED_VKEYS: retiredVkeys,
  SNAPSHOT_VKEY: vkeys('snapshot').optional(),
  LOG_KEY_FILE: z.string().optional(),
  SNAPSHOT_KEY_FILE: z.string().optional(),
  LOG_ORIGIN: origin,
  DATA_DIR: dataDir,
  SNAPSHOT_DIR: snapshotDir,
  SNAPSHOT_URL: snapshotUrl,
  SNAPSHOT_TTL: snapshotTtl,
  LOG_LEVEL: logLevel,
};

/** @param only the half to check; null for both */
export function readFsckConfig(only: FsckHalf | null, env: Environment) {
  const isOptional = only === 'snapshot';
  const DATABASE_URL = isOptional
    ? fsckSettings.DATABASE_URL.optional()
    : fsckSettings.DATABASE_URL;
  const v = read(env, { ...fsckSettings, DATABASE_URL });
  const name = v.logOrigin ?? LOCAL_ORIGIN;
  const logKey = trustedKey(v.logVkey, v.logKeyFile, name);
  const snapshotKey = trustedKey(v.snapshotVkey, v.snapshotKeyFile, snapshotNameFor(name));
  if (logKey === null) throw missingKey('LOG', 'log');
  if (snapshotKey === null && only !== 'registry') throw missingKey('SNAPSHOT', 'snapshot');
  const directory = resolve(v.snapshotDir ?? join(v.dataDir, 'public'));
  return {
    ...v,
    /** Null to skip the registry. */
    databaseUrl: only === 'snapshot' ? null : (v.databaseUrl ?? null),
    logKey,
    snapshotKey: snapshotKey ?? logKey,
    /** Null to skip the snapshot, or when it is read over HTTP. */
    snapshotDir: only === 'registry' || v.snapshotUrl !== null ? null : directory,
    snapshotUrl: only === 'registry' ? null : v.snapshotUrl,
  };
}

export const setupSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('admin')),
  AEP_PUBLIC_KEY_FILE: required(
    'name a PEM file with the public key of the key that signs AEPs',
  ).describe(
    'PEM file with the AEP public key, which `setup` activates unless the log already has an entry for it',
  ),
  LOG_LEVEL: logLevel,
};

export const readSetupConfig = (env: Environment) => read(env, setupSettings);

export type SecretsConfig = ReturnType<typeof readSecretsConfig>;

const hostAndPort = (fallback: string) =>
  z
    .string()
    .regex(/^[A-Za-z0-9.-]+:\d{1,5}$/, 'must be host:port')
    .default(fallback)
    .describe('host in the URLs that it creates, as the programs reach it');

export const secretsSettings = {
  SECRETS_DIR: z
    .string()
    .transform((path) => resolve(path))
    .prefault(join('deploy', 'secrets'))
    .describe('folder for what Compose needs'),
  LOG_ORIGIN: origin,
  DATABASE_HOST: hostAndPort('postgres:5432'),
  QUEUE_HOST: hostAndPort('valkey:6379'),
  DATABASE_NAME: z
    .string()
    .regex(/^[a-z][a-z0-9_]{0,62}$/, 'must be a plain lower-case name')
    .default('svc')
    .describe('database in the URLs that it creates'),
};

export function readSecretsConfig(env: Environment) {
  const v = read(env, secretsSettings);
  const logOrigin = originFor(v.logOrigin, false);
  return { ...v, logOrigin, snapshotName: snapshotNameFor(logOrigin) };
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

export const migrateSettings = {
  DATABASE_URL: databaseUrl(OWNER_URL),
  ROLE_URL_FILES: z
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
    )
    .describe(
      "files with the programs' database URLs, separated by commas: sets these roles' passwords and allows login",
    ),
  LOG_LEVEL: logLevel,
};

export function readMigrateConfig(env: Environment) {
  const { roleUrlFiles: roleLogins, ...v } = read(env, migrateSettings);
  return { ...v, roleLogins };
}
