import type { LogLevel } from '../process/log.js';
import {
  type DrainConfig,
  drainOf,
  drainVariables,
  type OpsConfig,
  opsOf,
  opsVariables,
} from './process.js';
import { read, type Environment } from './environment.js';
import {
  databaseUrl,
  listenAddress,
  localUrl,
  logLevel,
  maxQueuedAdmissions,
  paused,
  port,
  publicUrl,
  type QueueConfig,
  rateLimit,
  redisUrl,
  ROLE_URL,
  vkeys,
} from './fields.js';

export interface EngineConfig extends QueueConfig {
  /** Requests per second of a tenant without a limit in the registry. */
  rateLimit: number;
  /** Number of pending admissions at which new ones are rejected. */
  maxQueuedAdmissions: number;
  bind: string;
  port: number;
  /** The public API's base URL for links in exported documents. */
  publicUrl: string;
  /** Included in exports; null omits it. */
  logVkey: string | null;
  /** Included in exports under checkpoints that these keys signed. */
  retiredLogVkeys: string[];
  admissionsPaused: boolean;
  ops: OpsConfig;
  drain: DrainConfig;
  logLevel: LogLevel;
}

export function readEngineConfig(env: Environment): EngineConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('engine')),
    REDIS_URL: redisUrl,
    LISTEN_ADDRESS: listenAddress,
    ENGINE_PORT: port(8080),
    RATE_LIMIT: rateLimit,
    MAX_QUEUED_ADMISSIONS: maxQueuedAdmissions,
    PUBLIC_URL: publicUrl.optional(),
    PUBLIC_PORT: port(8081),
    LOG_VKEY: vkeys('log').optional(),
    ADMISSIONS_PAUSED: paused,
    ...opsVariables,
    ...drainVariables,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    bind: v.LISTEN_ADDRESS,
    port: v.ENGINE_PORT,
    rateLimit: v.RATE_LIMIT,
    maxQueuedAdmissions: v.MAX_QUEUED_ADMISSIONS,
    publicUrl: v.PUBLIC_URL ?? localUrl(v.PUBLIC_PORT),
    logVkey: v.LOG_VKEY?.[0] ?? null,
    retiredLogVkeys: v.LOG_VKEY?.slice(1) ?? [],
    admissionsPaused: v.ADMISSIONS_PAUSED === 'true',
    ops: opsOf(v),
    drain: drainOf(v),
    logLevel: v.LOG_LEVEL,
  };
}
