import { join, resolve } from 'node:path';
import * as z from 'zod';
import { ConfigError, type Environment, read } from './environment.js';
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
  processVariables,
  publicUrl,
  rateLimit,
  recentLookupLimit,
  redisUrl,
  required,
  retiredVkeys,
  ROLE_URL,
  snapshotNameFor,
  snapshotTtl,
  snapshotUrl,
  text,
  vkeys,
  wholeNumber,
} from './fields.js';

export type EngineConfig = ReturnType<typeof readEngineConfig>;

export function readEngineConfig(env: Environment) {
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
    ...processVariables,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL,
    bind: v.LISTEN_ADDRESS,
    port: v.ENGINE_PORT,
    /** Requests per second of a tenant without a limit in the registry. */
    rateLimit: v.RATE_LIMIT,
    /** Number of pending admissions at which new ones are rejected. */
    maxQueuedAdmissions: v.MAX_QUEUED_ADMISSIONS,
    /** The public API's base URL for links in exported documents. */
    publicUrl: v.PUBLIC_URL ?? localUrl(v.PUBLIC_PORT),
    /** Included in exports; null omits it. */
    logVkey: v.LOG_VKEY?.[0] ?? null,
    /** Included in exports under checkpoints that these keys signed. */
    retiredLogVkeys: v.LOG_VKEY?.slice(1) ?? [],
    admissionsPaused: v.ADMISSIONS_PAUSED,
    ...processOf(v),
  };
}

export type WorkerConfig = ReturnType<typeof readWorkerConfig>;

export function readWorkerConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('worker')),
    REDIS_URL: redisUrl,
    AEP_KEY_FILE: keyFile('key that signs AEPs'),
    ADMISSIONS_PAUSED: paused,
    ...processVariables,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL,
    aepKeyFile: v.AEP_KEY_FILE,
    admissionsPaused: v.ADMISSIONS_PAUSED,
    ...processOf(v),
  };
}

export type VerifierConfig = ReturnType<typeof readVerifierConfig>;

export function readVerifierConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('verifier')),
    REDIS_URL: redisUrl,
    ...processVariables,
  });
  return { databaseUrl: v.DATABASE_URL, redisUrl: v.REDIS_URL, ...processOf(v) };
}

export type PublisherConfig = ReturnType<typeof readPublisherConfig>;

/** The settings of a log and its snapshots. */
const logVariables = {
  LOG_RETIRED_VKEYS: retiredVkeys,
  SNAPSHOT_RETIRED_VKEYS: retiredVkeys,
  LOG_ORIGIN: origin.optional(),
  DATA_DIR: dataDir,
  SNAPSHOT_DIR: z.string().optional(),
  TRUSTED_CHECKPOINT: text,
  SNAPSHOT_TTL: snapshotTtl,
  RECENT_LOOKUP_LIMIT: recentLookupLimit,
};

function logOf(v: z.output<z.ZodObject<typeof logVariables>>, isEmbedded: boolean) {
  const logOrigin = originFor(v.LOG_ORIGIN, isEmbedded);
  return {
    /** Verifier keys that signed before the current keys. */
    retiredLogVkeys: v.LOG_RETIRED_VKEYS,
    retiredSnapshotVkeys: v.SNAPSHOT_RETIRED_VKEYS,
    /** The log key's name and the checkpoints' first line. */
    logOrigin,
    /** The snapshot key's name. */
    snapshotName: snapshotNameFor(logOrigin),
    snapshotDir: resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public')),
    /** A file or URL with a checkpoint of this log that was stored elsewhere. */
    lastCheckpoint: v.TRUSTED_CHECKPOINT,
    snapshotValidForMs: v.SNAPSHOT_TTL,
    /** Generic lookups search this many of the newest proofs. */
    recentLookupLimit: v.RECENT_LOOKUP_LIMIT,
  };
}

export function readPublisherConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('publisher')),
    DATABASE_READ_URL: databaseReadUrl,
    LOG_KEY_FILE: keyFile('key that signs checkpoints'),
    SNAPSHOT_KEY_FILE: keyFile('key that signs snapshots'),
    // Set by `start` for its children only: the database is the embedded one.
    EMBEDDED_DATABASE: z.literal('yes').optional(),
    ...logVariables,
    ...processVariables,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    /** A streaming replica, for every read that does not need the primary. */
    databaseReadUrl: v.DATABASE_READ_URL,
    logKeyFile: v.LOG_KEY_FILE,
    snapshotKeyFile: v.SNAPSHOT_KEY_FILE,
    ...logOf(v, v.EMBEDDED_DATABASE === 'yes'),
    ...processOf(v),
  };
}

export type FacadeConfig = ReturnType<typeof readFacadeConfig>;

/** Names no database, queue or secret, so that a compromised public API server yields none of them. */
export function readFacadeConfig(env: Environment) {
  const v = read(env, {
    LOG_VKEY: vkeys('log'),
    SNAPSHOT_VKEY: vkeys('snapshot'),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    SNAPSHOT_URL: snapshotUrl,
    LISTEN_ADDRESS: listenAddress,
    PUBLIC_PORT: port(8081),
    PUBLIC_PROCESSES: wholeNumber(1, 256, 1),
    PUBLIC_URL: publicUrl.nullable().default(null),
    RECENT_LOOKUP_LIMIT: recentLookupLimit,
    ...processVariables,
  });
  const directory = resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public'));
  return {
    /** Null when the snapshot is read over HTTP. */
    snapshotDir: v.SNAPSHOT_URL === null ? directory : null,
    snapshotUrl: v.SNAPSHOT_URL,
    /** The pinned keys: the current one, and during a rotation the other as well. */
    logVkeys: v.LOG_VKEY,
    snapshotVkeys: v.SNAPSHOT_VKEY,
    bind: v.LISTEN_ADDRESS,
    port: v.PUBLIC_PORT,
    /** Number of processes that share the port. */
    processes: v.PUBLIC_PROCESSES,
    /** Public base URL of this server; null: links are relative. */
    publicUrl: v.PUBLIC_URL,
    recentLookupLimit: v.RECENT_LOOKUP_LIMIT,
    ...processOf(v),
  };
}

export type BoardConfig = ReturnType<typeof readBoardConfig>;

/** Reads only what the dashboard needs: with the queue in Redis, no database URL. */
export function readBoardConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('board')).optional(),
    REDIS_URL: redisUrl,
    BOARD_BIND: listenAddress,
    BOARD_PORT: port(8082),
    BOARD_KEY_FILE: required(
      'name a file of mode 0600 with the dashboard key (openssl rand -hex 32)',
    ),
    ...processVariables,
  });
  if (v.REDIS_URL === null && v.DATABASE_URL === undefined) {
    throw new ConfigError([
      'REDIS_URL and DATABASE_URL are not set: set one to the server that has the queue, with the role svc_board for a database',
    ]);
  }
  return {
    databaseUrl: v.DATABASE_URL ?? '',
    redisUrl: v.REDIS_URL,
    bind: v.BOARD_BIND,
    port: v.BOARD_PORT,
    /** Holds the key that visitors have to present. */
    keyFile: v.BOARD_KEY_FILE,
    ...processOf(v),
  };
}

export type StartConfig = ReturnType<typeof readStartConfig>;

export function readStartConfig(env: Environment) {
  const v = read(env, {
    DATABASE_URL: databaseUrl(OWNER_URL).nullable().default(null),
    REDIS_URL: redisUrl,
    LISTEN_ADDRESS: listenAddress,
    ENGINE_PORT: port(8080),
    PUBLIC_PORT: port(8081),
    PUBLIC_URL: publicUrl.nullable().default(null),
    RATE_LIMIT: rateLimit,
    MAX_QUEUED_ADMISSIONS: maxQueuedAdmissions,
    AEP_KEY_FILE: z.string().optional(),
    LOG_KEY_FILE: z.string().optional(),
    SNAPSHOT_KEY_FILE: z.string().optional(),
    ADMISSIONS_PAUSED: paused,
    ...logVariables,
    ...processVariables,
  });
  const file = (given: string | undefined, name: string): string =>
    resolve(given ?? join(v.DATA_DIR, name));
  return {
    /** The owner's connection; null starts the embedded database. */
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL,
    dataDir: v.DATA_DIR,
    bind: v.LISTEN_ADDRESS,
    enginePort: v.ENGINE_PORT,
    publicPort: v.PUBLIC_PORT,
    /** The public API's base URL for clients; null: the address on which it listens. */
    publicUrl: v.PUBLIC_URL,
    rateLimit: v.RATE_LIMIT,
    maxQueuedAdmissions: v.MAX_QUEUED_ADMISSIONS,
    aepKeyFile: file(v.AEP_KEY_FILE, 'aep-key.pem'),
    logKeyFile: file(v.LOG_KEY_FILE, 'log-key.pem'),
    snapshotKeyFile: file(v.SNAPSHOT_KEY_FILE, 'snapshot-key.pem'),
    admissionsPaused: v.ADMISSIONS_PAUSED,
    ...logOf(v, v.DATABASE_URL === null),
    ...processOf(v),
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
