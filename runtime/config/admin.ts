import type { LogLevel } from '../log.js';
import { read, type Environment } from './environment.js';
import { logLevel } from './fields.js';
import { databaseUrl, ROLE_URL } from './urls.js';

export interface AdminConfig {
  databaseUrl: string;
  logLevel: LogLevel;
}

export function readAdminConfig(role: 'admin' | 'erase', env: Environment): AdminConfig {
  const v = read(env, { DATABASE_URL: databaseUrl(ROLE_URL(role)), LOG_LEVEL: logLevel });
  return { databaseUrl: v.DATABASE_URL, logLevel: v.LOG_LEVEL };
}
