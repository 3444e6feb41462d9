import type { LogLevel } from '../log.js';
import { read, type Environment } from './environment.js';
import { logLevel } from './fields.js';
import type { QueueConfig } from './queue.js';
import { databaseUrl, OWNER_URL, redisUrl } from './urls.js';

export interface MigrateConfig extends QueueConfig {
  logLevel: LogLevel;
}

export function readMigrateConfig(env: Environment): MigrateConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(OWNER_URL),
    REDIS_URL: redisUrl,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    logLevel: v.LOG_LEVEL,
  };
}
