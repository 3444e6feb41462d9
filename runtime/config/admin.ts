import { resolve } from 'node:path';
import * as z from 'zod';
import type { LogLevel } from '../process/log.js';
import { ConfigError, type Environment, read } from './environment.js';
import {
  databaseUrl,
  dataDir,
  listenAddress,
  logLevel,
  port,
  publicUrl,
  type QueueConfig,
  redisUrl,
  required,
  ROLE_URL,
} from './fields.js';
import { type OpsConfig, opsOf, opsVariables } from './process.js';

export interface AdminConfig {
  databaseUrl: string;
  logLevel: LogLevel;
}

export function readAdminConfig(role: 'admin' | 'erase', env: Environment): AdminConfig {
  const v = read(env, { DATABASE_URL: databaseUrl(ROLE_URL(role)), LOG_LEVEL: logLevel });
  return { databaseUrl: v.DATABASE_URL, logLevel: v.LOG_LEVEL };
}

export interface StatusConfig {
  /** Public API URLs to check; empty when none is configured. */
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

export interface BoardConfig extends QueueConfig {
  bind: string;
  port: number;
  /** Holds the key that visitors have to present. */
  keyFile: string;
  ops: OpsConfig;
  logLevel: LogLevel;
}

/** Reads only what the dashboard needs: with the queue in Redis, no database URL. */
export function readBoardConfig(env: Environment): BoardConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('board')).optional(),
    REDIS_URL: redisUrl,
    BOARD_BIND: listenAddress,
    BOARD_PORT: port(8082),
    BOARD_KEY_FILE: required(
      'name a file of mode 0600 with the dashboard key (openssl rand -hex 32)',
    ),
    ...opsVariables,
    LOG_LEVEL: logLevel,
  });
  if (v.REDIS_URL === undefined && v.DATABASE_URL === undefined) {
    throw new ConfigError([
      'REDIS_URL and DATABASE_URL are not set: set one to the server that has the queue, with the role svc_board for a database',
    ]);
  }
  return {
    databaseUrl: v.DATABASE_URL ?? '',
    redisUrl: v.REDIS_URL ?? null,
    bind: v.BOARD_BIND,
    port: v.BOARD_PORT,
    keyFile: v.BOARD_KEY_FILE,
    ops: opsOf(v),
    logLevel: v.LOG_LEVEL,
  };
}
