import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import * as z from 'zod';
import type { LogLevel } from '../process/log.js';
import { type Environment, read } from './environment.js';
import {
  databaseUrl,
  logLevel,
  origin,
  originFor,
  OWNER_URL,
  type QueueConfig,
  redisUrl,
  required,
  ROLE_URL,
  snapshotNameFor,
} from './fields.js';

export interface SetupConfig {
  databaseUrl: string;
  /** A PEM file with the public key of the key that signs AEPs. */
  aepPublicKeyFile: string;
  logLevel: LogLevel;
}

export function readSetupConfig(env: Environment): SetupConfig {
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

export interface SecretsConfig {
  /** Directory for the created files. */
  directory: string;
  logOrigin: string;
  /** The snapshot key's name. */
  snapshotName: string;
  /** host:port, as the programs reach it. */
  databaseHost: string;
  queueHost: string;
  database: string;
}

const hostAndPort = (fallback: string): z.ZodType<string> =>
  z
    .string()
    .regex(/^[A-Za-z0-9.-]+:\d{1,5}$/, 'must be host:port')
    .default(fallback);

export function readSecretsConfig(env: Environment): SecretsConfig {
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
    directory: resolve(v.SECRETS_DIR),
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    databaseHost: v.DATABASE_HOST,
    queueHost: v.QUEUE_HOST,
    database: v.DATABASE_NAME,
  };
}

export interface MigrateConfig extends QueueConfig {
  /** Roles that may log in afterwards; the others stay unchanged. */
  roleLogins: RoleLogin[];
  logLevel: LogLevel;
}

export function readMigrateConfig(env: Environment): MigrateConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(OWNER_URL),
    REDIS_URL: redisUrl,
    ROLE_URL_FILES: roleLogins,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
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
