import { join, resolve } from 'node:path';
import * as z from 'zod';
import { ConfigError, type Environment, read, type Values } from './environment.js';
import {
  databaseReadUrl,
  databaseUrl,
  dataDir,
  keyFile,
  listenAddress,
  localUrl,
  maxQueuedAdmissions,
  origin,
  originFor,
  OWNER_URL,
  paused,
  port,
  processOf,
  processSettings,
  publicUrl,
  rateLimit,
  recentLookupLimit,
  redisUrl,
  required,
  retiredVkeys,
  ROLE_URL,
  snapshotDir,
  snapshotNameFor,
  snapshotTtl,
  snapshotUrl,
  vkeys,
  wholeNumber,
} from './fields.js';

const enginePort = port('8080', 'the engine API');
const publicPort = port('8081', 'the public API');

export const engineSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('engine')),
  REDIS_URL: redisUrl,
  LISTEN_ADDRESS: listenAddress,
  ENGINE_PORT: enginePort,
  RATE_LIMIT: rateLimit,
  MAX_QUEUED_ADMISSIONS: maxQueuedAdmissions,
  PUBLIC_URL: publicUrl,
  PUBLIC_PORT: publicPort,
  LOG_VKEY: vkeys('log').optional(),
  ADMISSIONS_PAUSED: paused,
  ...processSettings,
};

export function readEngineConfig(env: Environment) {
  const v = read(env, engineSettings);
  return {
    ...v,
    ...processOf(v),
    publicUrl: v.publicUrl ?? localUrl(v.publicPort),
    /** Included in exports; null omits it. */
    logVkey: v.logVkey?.[0] ?? null,
    /** Included in exports under checkpoints that these keys signed. */
    logRetiredVkeys: v.logVkey?.slice(1) ?? [],
  };
}

export const workerSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('worker')),
  REDIS_URL: redisUrl,
  AEP_KEY_FILE: keyFile('key that signs AEPs'),
  ADMISSIONS_PAUSED: paused,
  ...processSettings,
};

export function readWorkerConfig(env: Environment) {
  const v = read(env, workerSettings);
  return { ...v, ...processOf(v) };
}

export const verifierSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('verifier')),
  ...processSettings,
};

export function readVerifierConfig(env: Environment) {
  const v = read(env, verifierSettings);
  return { ...v, ...processOf(v) };
}

/** The settings of a log and its snapshots. */
const logSettings = {
  LOG_RETIRED_VKEYS: retiredVkeys,
  SNAPSHOT_RETIRED_VKEYS: retiredVkeys,
  LOG_ORIGIN: origin,
  DATA_DIR: dataDir,
  SNAPSHOT_DIR: snapshotDir,
  TRUSTED_CHECKPOINT: z
    .string()
    .nullable()
    .default(null)
    .describe('path or URL of a checkpoint kept elsewhere, which the log must extend'),
  SNAPSHOT_TTL: snapshotTtl,
  RECENT_LOOKUP_LIMIT: recentLookupLimit,
};

function logOf(v: Values<typeof logSettings>, isEmbedded: boolean) {
  const logOrigin = originFor(v.logOrigin, isEmbedded);
  return {
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    snapshotDir: resolve(v.snapshotDir ?? join(v.dataDir, 'public')),
  };
}

export const publisherSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('publisher')),
  DATABASE_READ_URL: databaseReadUrl,
  LOG_KEY_FILE: keyFile('key that signs checkpoints'),
  SNAPSHOT_KEY_FILE: keyFile('key that signs snapshots'),
  // Set by `start` for its children only: the database is the embedded one.
  EMBEDDED_DATABASE: z.literal('yes').optional(),
  ...logSettings,
  ...processSettings,
};

export function readPublisherConfig(env: Environment) {
  const v = read(env, publisherSettings);
  return { ...v, ...logOf(v, v.embeddedDatabase === 'yes'), ...processOf(v) };
}

/** Names no database, queue or secret, so that a compromised public API server yields none of them. */
export const facadeSettings = {
  LOG_VKEY: vkeys('log'),
  SNAPSHOT_VKEY: vkeys('snapshot'),
  DATA_DIR: dataDir,
  SNAPSHOT_DIR: snapshotDir,
  SNAPSHOT_URL: snapshotUrl,
  LISTEN_ADDRESS: listenAddress,
  PUBLIC_PORT: publicPort,
  PUBLIC_PROCESSES: wholeNumber(1, 256, '1').describe(
    'processes that serve `PUBLIC_PORT`, 1 to 256',
  ),
  PUBLIC_URL: publicUrl,
  RECENT_LOOKUP_LIMIT: recentLookupLimit,
  ...processSettings,
};

export type FacadeConfig = ReturnType<typeof readFacadeConfig>;

export function readFacadeConfig(env: Environment) {
  const v = read(env, facadeSettings);
  const directory = resolve(v.snapshotDir ?? join(v.dataDir, 'public'));
  // Null when the snapshot is read over HTTP.
  return { ...v, ...processOf(v), snapshotDir: v.snapshotUrl === null ? directory : null };
}

/** Only what the dashboard needs: with the queue in Redis, no database URL. */
export const boardSettings = {
  DATABASE_URL: databaseUrl(ROLE_URL('board')).optional(),
  REDIS_URL: redisUrl,
  BOARD_BIND: listenAddress,
  BOARD_PORT: port('8082', 'the queue dashboard'),
  BOARD_KEY_FILE: required(
    'name a file of mode 0600 with the dashboard key (openssl rand -hex 32)',
  ).describe('file of mode 0600 with the password of the queue dashboard (HTTP Basic)'),
  ...processSettings,
};

export function readBoardConfig(env: Environment) {
  const v = read(env, boardSettings);
  if (v.redisUrl === null && v.databaseUrl === undefined) {
    throw new ConfigError([
      'REDIS_URL and DATABASE_URL are not set: set one to the server that has the queue, with the role svc_board for a database',
    ]);
  }
  return { ...v, ...processOf(v), databaseUrl: v.databaseUrl ?? '' };
}

export const startSettings = {
  DATABASE_URL: databaseUrl(OWNER_URL).nullable().default(null),
  REDIS_URL: redisUrl,
  LISTEN_ADDRESS: listenAddress,
  ENGINE_PORT: enginePort,
  PUBLIC_PORT: publicPort,
  PUBLIC_URL: publicUrl,
  RATE_LIMIT: rateLimit,
  MAX_QUEUED_ADMISSIONS: maxQueuedAdmissions,
  AEP_KEY_FILE: z.string().optional(),
  LOG_KEY_FILE: z.string().optional(),
  SNAPSHOT_KEY_FILE: z.string().optional(),
  ADMISSIONS_PAUSED: paused,
  ...logSettings,
  ...processSettings,
};

export type StartConfig = ReturnType<typeof readStartConfig>;

export function readStartConfig(env: Environment) {
  const v = read(env, startSettings);
  const file = (given: string | undefined, name: string): string =>
    resolve(given ?? join(v.dataDir, name));
  return {
    ...v,
    ...logOf(v, v.databaseUrl === null),
    ...processOf(v),
    aepKeyFile: file(v.aepKeyFile, 'aep-key.pem'),
    logKeyFile: file(v.logKeyFile, 'log-key.pem'),
    snapshotKeyFile: file(v.snapshotKeyFile, 'snapshot-key.pem'),
    /** For the children, of which each reads its own settings. */
    env,
  };
}

/** A separate stack beside a running one: it ignores every variable but the log level. */
export function readDemoConfig(dataDir: string, env: Environment): StartConfig {
  return readStartConfig({
    DATA_DIR: dataDir,
    ENGINE_PORT: '0',
    PUBLIC_PORT: '0',
    LOG_LEVEL: env['LOG_LEVEL'] || 'error',
  });
}
