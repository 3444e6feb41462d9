import type { LogLevel } from '../log.js';
import { drainOf, drainVariables, type DrainConfig } from './drain.js';
import { read, type Environment } from './environment.js';
import { paused, logLevel } from './fields.js';
import { keyFile } from './keys.js';
import type { QueueConfig } from './queue.js';
import { opsOf, opsVariables, type OpsConfig } from './ops.js';
import { databaseUrl, redisUrl, ROLE_URL } from './urls.js';

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
