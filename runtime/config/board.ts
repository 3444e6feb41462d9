import type { LogLevel } from '../log.js';
import { ConfigError, read, type Environment } from './environment.js';
import { listenAddress, logLevel, port, required } from './fields.js';
import { opsOf, opsVariables, type OpsConfig } from './ops.js';
import type { QueueConfig } from './queue.js';
import { databaseUrl, redisUrl, ROLE_URL } from './urls.js';

export interface BoardConfig extends QueueConfig {
  bind: string;
  port: number;
  /** What it holds is asked of whoever wants to look. */
  keyFile: string;
  ops: OpsConfig;
  logLevel: LogLevel;
}

/** It sees the queue and nothing else: where that is in Redis, it is not told of a database. */
export function readBoardConfig(env: Environment): BoardConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('board')).optional(),
    REDIS_URL: redisUrl,
    BOARD_BIND: listenAddress,
    BOARD_PORT: port(8082),
    BOARD_KEY_FILE: required(
      'name a file of mode 0600 that holds what is asked of whoever wants to look (openssl rand -hex 32)',
    ),
    ...opsVariables,
    LOG_LEVEL: logLevel,
  });
  if (v.REDIS_URL === undefined && v.DATABASE_URL === undefined) {
    throw new ConfigError([
      'REDIS_URL and DATABASE_URL are not set: name the Redis with the queue, or the database as svc_board',
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
