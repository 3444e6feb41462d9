import { resolve } from 'node:path';
import * as z from 'zod';
import type { LogLevel } from '../log.js';
import { read, type Environment } from './environment.js';
import { dataDir, logLevel } from './fields.js';
import { databaseUrl, publicUrl, ROLE_URL } from './urls.js';

export interface AdminConfig {
  databaseUrl: string;
  logLevel: LogLevel;
}

export function readAdminConfig(role: 'admin' | 'erase', env: Environment): AdminConfig {
  const v = read(env, { DATABASE_URL: databaseUrl(ROLE_URL(role)), LOG_LEVEL: logLevel });
  return { databaseUrl: v.DATABASE_URL, logLevel: v.LOG_LEVEL };
}

export interface StatusConfig {
  /** Where the public API is checked; empty when nothing is configured. */
  publicUrls: string[];
  dataDir: string;
}

export function readStatusConfig(env: Environment): StatusConfig {
  const v = read(env, {
    PUBLIC_URL: z
      .string()
      .transform((text) => text.split(',').map((one) => one.trim()))
      .pipe(z.array(publicUrl))
      .optional(),
    DATA_DIR: dataDir,
  });
  return { publicUrls: v.PUBLIC_URL ?? [], dataDir: resolve(v.DATA_DIR) };
}
