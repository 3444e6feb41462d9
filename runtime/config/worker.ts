import type { LogLevel } from '../process/log.js';
import { type Environment, read } from './environment.js';
import {
  databaseUrl,
  keyFile,
  logLevel,
  paused,
  type QueueConfig,
  redisUrl,
  ROLE_URL,
} from './fields.js';
import {
  type DrainConfig,
  drainOf,
  drainVariables,
  type OpsConfig,
  opsOf,
  opsVariables,
} from './process.js';

export interface WorkerConfig extends QueueConfig {
  aepKeyFile: string;
  admissionsPaused: boolean;
  ops: OpsConfig;
  drain: DrainConfig;
  logLevel: LogLevel;
}

export function readWorkerConfig(env: Environment): WorkerConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('worker')),
    REDIS_URL: redisUrl,
    AEP_KEY_FILE: keyFile('key that signs AEPs'),
    ADMISSIONS_PAUSED: paused,
    ...opsVariables,
    ...drainVariables,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    aepKeyFile: v.AEP_KEY_FILE,
    admissionsPaused: v.ADMISSIONS_PAUSED === 'true',
    ops: opsOf(v),
    drain: drainOf(v),
    logLevel: v.LOG_LEVEL,
  };
}

export interface VerifierConfig extends QueueConfig {
  ops: OpsConfig;
  drain: DrainConfig;
  logLevel: LogLevel;
}

export function readVerifierConfig(env: Environment): VerifierConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('verifier')),
    REDIS_URL: redisUrl,
    ...opsVariables,
    ...drainVariables,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    ops: opsOf(v),
    drain: drainOf(v),
    logLevel: v.LOG_LEVEL,
  };
}
