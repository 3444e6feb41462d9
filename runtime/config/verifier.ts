import type { LogLevel } from '../log.js';
import { drainOf, drainVariables, type DrainConfig } from './drain.js';
import { read, type Environment } from './environment.js';
import { logLevel } from './fields.js';
import type { QueueConfig } from './queue.js';
import { opsOf, opsVariables, type OpsConfig } from './ops.js';
import { databaseUrl, redisUrl, ROLE_URL } from './urls.js';

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
