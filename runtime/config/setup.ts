import { join, resolve } from 'node:path';
import * as z from 'zod';
import type { LogLevel } from '../log.js';
import { read, type Environment } from './environment.js';
import { logLevel, required } from './fields.js';
import { origin, originFor, snapshotNameFor } from './log-names.js';
import { databaseUrl, ROLE_URL } from './urls.js';

export interface SetupConfig {
  databaseUrl: string;
  /** A PEM file with the public half of the key that signs AEPs. */
  aepPublicKeyFile: string;
  logLevel: LogLevel;
}

export function readSetupConfig(env: Environment): SetupConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('admin')),
    AEP_PUBLIC_KEY_FILE: required(
      'name a PEM file with the public half of the key that signs AEPs',
    ),
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    aepPublicKeyFile: resolve(v.AEP_PUBLIC_KEY_FILE),
    logLevel: v.LOG_LEVEL,
  };
}

export interface SecretsConfig {
  /** Where the files are made. */
  directory: string;
  logOrigin: string;
  /** The snapshot key's name. */
  snapshotName: string;
  /** host:port, as the programs reach them. */
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
