import type { LogLevel } from '../log.js';
import { read, type Environment } from './environment.js';
import { logLevel } from './fields.js';
import type { QueueConfig } from './queue.js';
import { roleLogins, type RoleLogin } from './role-passwords.js';
import { databaseUrl, OWNER_URL, redisUrl } from './urls.js';

export interface MigrateConfig extends QueueConfig {
  /** The programs' roles that may log in afterwards; the others stay as they are. */
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
