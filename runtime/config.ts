import { join, resolve } from 'node:path';
import * as z from 'zod';
import * as field from './config/fields.js';
import { logKeysIn } from './config/pins.js';
import {
  ConfigError,
  type Environment,
  FROM_FILES,
  read as readSettings,
  type Values,
} from './config/read.js';
import { isKeyUri } from './crypto/node.js';
import { LOG_LEVELS, type LogLevel } from './process/log.js';

export { ConfigError, type Environment } from './config/read.js';
export {
  defaultOpsPort,
  LOCAL_ORIGIN,
  opsPortOf,
  opsPortsOf,
  splitVkeys,
  type DrainConfig,
  type OpsConfig,
  type QueueConfig,
  type ServingProgram,
} from './config/fields.js';

// Only this module reads `process.env`; tests pass another environment.

const read = <Shape extends z.ZodRawShape>(shape: Shape, env: Environment) =>
  readSettings(shape, env, settingNames());

/** Reads the settings of a program that serves. */
function readProcess<Shape extends z.ZodRawShape>(
  shape: Shape & typeof field.processSettings,
  env: Environment,
) {
  const v = read<Shape & typeof field.processSettings>(shape, env);
  const process = v as Values<typeof field.processSettings>;
  return {
    ...v,
    ops: { port: process.opsPort, bind: process.opsBind },
    drain: { delayMs: process.shutdownDelay, deadlineMs: process.shutdownTimeout },
  };
}

interface SnapshotSettings {
  snapshotDir?: string | undefined;
  snapshotStore: string | null;
  dataDir: string;
}

function snapshotPlaceOf({ snapshotDir, snapshotStore, dataDir }: SnapshotSettings): string {
  if (snapshotStore === null) return resolve(snapshotDir ?? join(dataDir, 'public'));
  if (snapshotDir === undefined) return snapshotStore;
  throw new ConfigError([
    'SNAPSHOT_STORE and SNAPSHOT_DIR are both set: keep the setting that names the snapshot',
  ]);
}

/** Like `snapshotPlaceOf`, but null when the snapshot is read over HTTP. */
function localPlaceOf(v: SnapshotSettings & { snapshotUrl: string | null }): string | null {
  if (v.snapshotUrl === null) return snapshotPlaceOf(v);
  if (v.snapshotStore === null) return null;
  throw new ConfigError([
    'SNAPSHOT_STORE and SNAPSHOT_URL are both set: keep SNAPSHOT_STORE to read with credentials, or SNAPSHOT_URL to read over HTTP',
  ]);
}

function pinsOf({ pinsFile, dataDir }: { pinsFile?: string | undefined; dataDir: string }) {
  const keys = logKeysIn(resolve(pinsFile ?? join(dataDir, 'pins.json')));
  if (typeof keys === 'string') throw new ConfigError([keys]);
  return keys;
}

const enginePort = field.port('8080', 'the engine API');
const publicPort = field.port('8081', 'the public API');

const engineSettings = {
  DATABASE_URL: field.databaseUrl(field.ROLE_URL('engine')),
  REDIS_URL: field.redisUrl,
  LISTEN_ADDRESS: field.listenAddress,
  ENGINE_PORT: enginePort,
  RATE_LIMIT: field.rateLimit,
  MAX_QUEUED_ADMISSIONS: field.maxQueuedAdmissions,
  PUBLIC_URL: field.publicUrl,
  PUBLIC_PORT: publicPort,
  ADMISSIONS_PAUSED: field.paused,
  ...field.tracingSettings,
  OTEL_TRACES_SAMPLER_ARG: field.traceRatio,
  ...field.processSettings,
};

export function engineConfig(env: Environment = process.env) {
  const v = readProcess(engineSettings, env);
  return {
    ...v,
    publicUrl: v.publicUrl ?? field.localUrl(v.publicPort),
  };
}

const workerSettings = {
  DATABASE_URL: field.databaseUrl(field.ROLE_URL('worker')),
  REDIS_URL: field.redisUrl,
  AEP_KEY_FILE: field.aepKeyFile,
  AEP_ROOT_KEY_FILE: field.rootKeyFile,
  LOG_ORIGIN: field.origin,
  ADMISSIONS_PAUSED: field.paused,
  ...field.tracingSettings,
  ...field.processSettings,
};

export type WorkerConfig = ReturnType<typeof workerConfig>;

export function workerConfig(env: Environment = process.env) {
  const { aepKeyFile, aepRootKeyFile, logOrigin, ...v } = readProcess(workerSettings, env);
  if (aepKeyFile !== undefined && aepRootKeyFile === undefined) {
    return { ...v, signing: { keyFile: aepKeyFile } };
  }
  if (aepRootKeyFile !== undefined && aepKeyFile === undefined) {
    const origin = field.originFor(logOrigin, false);
    return { ...v, signing: { rootKeyFile: aepRootKeyFile, logOrigin: origin } };
  }
  throw new ConfigError([
    'set either AEP_KEY_FILE to a file of mode 0600 with the key that signs AEPs (openssl genpkey -algorithm ed25519), or AEP_ROOT_KEY_FILE to a root key, but not both',
  ]);
}

// Only `start` sets this variable, for its children, which use the embedded database.
const EMBEDDED_DATABASE = z.literal('yes').optional();

const verifierSettings = {
  DATABASE_URL: field.databaseUrl(field.ROLE_URL('verifier')),
  VERIFIER_KEY_FILE: field.keyFile('key that signs verdict entries'),
  EMBEDDED_DATABASE,
  LOG_ORIGIN: field.origin,
  SNAPSHOT_TTL: field.snapshotTtl,
  ...field.tracingSettings,
  ...field.processSettings,
};

export function verifierConfig(env: Environment = process.env) {
  const v = readProcess(verifierSettings, env);
  return { ...v, logOrigin: field.originFor(v.logOrigin, v.embeddedDatabase === 'yes') };
}

const logSettings = {
  LOG_ORIGIN: field.origin,
  DATA_DIR: field.dataDir,
  SNAPSHOT_DIR: field.snapshotDir,
  SNAPSHOT_STORE: field.snapshotStore,
  TRUSTED_CHECKPOINT: z
    .string()
    .nullable()
    .default(null)
    .describe('path or URL of a checkpoint kept elsewhere, which the log must extend'),
  WITNESS_POLICY_FILE: z
    .string()
    .nullable()
    .default(null)
    .describe(
      '[C2SP tlog-policy](operate.md#witnesses-of-this-log) of the witnesses that cosign the checkpoints, with their URLs',
    ),
  SNAPSHOT_TTL: field.snapshotTtl,
  MAX_MERGE_DELAY: field.maxMergeDelay,
  RECENT_LOOKUP_LIMIT: field.recentLookupLimit,
};

const publisherSettings = {
  DATABASE_URL: field.databaseUrl(field.ROLE_URL('publisher')),
  DATABASE_READ_URL: field.databaseReadUrl,
  LOG_KEY_FILE: field.keyFile('key that signs checkpoints'),
  EMBEDDED_DATABASE,
  ...logSettings,
  ...field.tracingSettings,
  ...field.processSettings,
};

export function publisherConfig(env: Environment = process.env) {
  const v = readProcess(publisherSettings, env);
  const logOrigin = field.originFor(v.logOrigin, v.embeddedDatabase === 'yes');
  return { ...v, logOrigin, snapshotPlace: snapshotPlaceOf(v) };
}

/** These settings name no database, queue or secret, so that a compromised public API server exposes none of them. */
const facadeSettings = {
  PINS_FILE: field.pinsFile,
  DATA_DIR: field.dataDir,
  SNAPSHOT_DIR: field.snapshotDir,
  SNAPSHOT_STORE: field.snapshotStore,
  SNAPSHOT_URL: field.snapshotUrl,
  LISTEN_ADDRESS: field.listenAddress,
  PUBLIC_PORT: publicPort,
  PUBLIC_PROCESSES: field
    .wholeNumber(1, 256, '1')
    .describe('processes that serve `PUBLIC_PORT`, 1 to 256'),
  PUBLIC_URL: field.publicUrl,
  ...field.processSettings,
};

export type FacadeConfig = ReturnType<typeof facadeConfig>;

export function facadeConfig(env: Environment = process.env) {
  const v = readProcess(facadeSettings, env);
  return { ...v, pins: pinsOf(v), snapshotPlace: localPlaceOf(v) };
}

/** With the queue in Redis, the dashboard gets no database URL, because it does not need the database. */
const boardSettings = {
  DATABASE_URL: field.databaseUrl(field.ROLE_URL('board')).optional(),
  REDIS_URL: field.redisUrl,
  BOARD_BIND: field.listenAddress.describe('address of the queue dashboard'),
  BOARD_PORT: field.port('8082', 'the queue dashboard'),
  BOARD_KEY_FILE: field
    .required('name a file of mode 0600 with the dashboard key (openssl rand -hex 32)')
    .describe('file of mode 0600 with the password of the queue dashboard (HTTP Basic)'),
  ...field.processSettings,
};

export function boardConfig(env: Environment = process.env) {
  const v = readProcess(boardSettings, env);
  if (v.redisUrl === null && v.databaseUrl === undefined) {
    throw new ConfigError([
      'REDIS_URL and DATABASE_URL are not set: set one to the server that has the queue, with the role svc_board for a database',
    ]);
  }
  return { ...v, databaseUrl: v.databaseUrl ?? '' };
}

const witnessSettings = {
  WITNESS_NAME: field
    .required('choose a name like witness.example.org/w1')
    .regex(/^[^\s+]{1,200}$/, 'must be a name without spaces or plus signs')
    .describe('name of the witness key, in your own domain'),
  WITNESS_KEY_FILE: field
    .required('name a file of mode 0600 with a key that nothing else uses (openssl genpkey)')
    .describe(
      'file of mode 0600 with the key that cosigns, or [a key in an HSM or in AWS KMS](deploy.md#keys-in-an-hsm-or-in-aws-kms); use it for nothing else',
    ),
  WITNESS_LOG_VKEYS: field.witnessLogVkeys,
  WITNESS_DIR: field
    .directory(join('.data', 'witness'))
    .describe('directory with the last cosigned tree head of each log; never delete or restore it'),
  LISTEN_ADDRESS: field.listenAddress,
  WITNESS_PORT: field.port('8083', 'the witness'),
  ...field.processSettings,
};

export const witnessConfig = (env: Environment = process.env) => readProcess(witnessSettings, env);

const monitorSettings = {
  MONITOR_URL: field.monitorUrl,
  MONITOR_MIRRORS: field.monitorMirrors,
  MONITOR_WATCH: field.list(
    'files with receipts, their evidence, exports or proof ids to watch, or directories of such files, separated by commas',
  ),
  MONITOR_DIR: field
    .directory(join('.data', 'monitor'))
    .describe('directory with the last checkpoint, the map and the lasting alarms of the monitor'),
  MONITOR_INTERVAL: field.monitorInterval,
  PINS_FILE: field.pinsFile,
  DATA_DIR: field.dataDir,
  ...field.processSettings,
};

export function monitorConfig(env: Environment = process.env) {
  const v = readProcess(monitorSettings, env);
  return { ...v, pins: pinsOf(v) };
}

const startSettings = {
  DATABASE_URL: field.databaseUrl(field.OWNER_URL).nullable().default(null),
  REDIS_URL: field.redisUrl,
  LISTEN_ADDRESS: field.listenAddress,
  ENGINE_PORT: enginePort,
  PUBLIC_PORT: publicPort,
  PUBLIC_URL: field.publicUrl,
  RATE_LIMIT: field.rateLimit,
  MAX_QUEUED_ADMISSIONS: field.maxQueuedAdmissions,
  AEP_KEY_FILE: z.string().optional(),
  VERIFIER_KEY_FILE: z.string().optional(),
  LOG_KEY_FILE: z.string().optional(),
  ADMISSIONS_PAUSED: field.paused,
  ...logSettings,
  ...field.tracingSettings,
  OTEL_TRACES_SAMPLER_ARG: field.traceRatio,
  ...field.processSettings,
};

export type StartConfig = ReturnType<typeof startConfig>;

export function startConfig(env: Environment = process.env) {
  const v = readProcess(startSettings, env);
  const file = (given: string | undefined, name: string): string =>
    given !== undefined && isKeyUri(given) ? given : resolve(given ?? join(v.dataDir, name));
  return {
    ...v,
    logOrigin: field.originFor(v.logOrigin, v.databaseUrl === null),
    snapshotPlace: snapshotPlaceOf(v),
    aepKeyFile: file(v.aepKeyFile, 'aep-key.pem'),
    verifierKeyFile: file(v.verifierKeyFile, 'verifier-key.pem'),
    logKeyFile: file(v.logKeyFile, 'log-key.pem'),
    /** The environment for the child processes; each reads its own settings. */
    env,
  };
}

/** For `demo`. Ignores every variable except the log level, because the other variables may configure another stack. */
export function demoConfig(dataDir: string, env: Environment = process.env): StartConfig {
  return startConfig({
    DATA_DIR: dataDir,
    ENGINE_PORT: '0',
    PUBLIC_PORT: '0',
    LOG_LEVEL: env['LOG_LEVEL'] || 'error',
  });
}

const statusSettings = {
  PUBLIC_URL: z
    .string()
    .transform((text) => text.split(',').map((one) => one.trim()))
    .pipe(z.array(field.anyPublicUrl))
    .optional(),
  DATA_DIR: field.dataDir,
};

const databaseSettings = (role: 'admin' | 'erase') => ({
  DATABASE_URL: field.databaseUrl(field.ROLE_URL(role)),
  LOG_LEVEL: field.logLevel,
});

/** @param role database role that the command uses */
export const adminConfig = (role: 'admin' | 'erase', env: Environment = process.env) =>
  read(databaseSettings(role), env);

export type StatusConfig = ReturnType<typeof statusConfig>;

export function statusConfig(env: Environment = process.env) {
  const v = read(statusSettings, env);
  return { publicUrls: v.publicUrl ?? [], dataDir: v.dataDir };
}

export type FsckConfig = ReturnType<typeof fsckConfig>;

const fsckSettings = {
  DATABASE_URL: field.databaseUrl(field.ROLE_URL('fsck')),
  PINS_FILE: field.pinsFile,
  DATA_DIR: field.dataDir,
  SNAPSHOT_DIR: field.snapshotDir,
  SNAPSHOT_STORE: field.snapshotStore,
  SNAPSHOT_URL: field.snapshotUrl,
  LOG_LEVEL: field.logLevel,
};

/** @param only the half to check, registry or snapshot; null for both */
export function fsckConfig(only: 'registry' | 'snapshot' | null, env: Environment = process.env) {
  const url = fsckSettings.DATABASE_URL;
  const DATABASE_URL = only === 'snapshot' ? url.optional() : url;
  const v = read({ ...fsckSettings, DATABASE_URL }, env);
  return {
    ...v,
    /** Null to skip the registry. */
    databaseUrl: only === 'snapshot' ? null : (v.databaseUrl ?? null),
    pins: pinsOf(v),
    /** The directory or bucket of the snapshot; null when the snapshot is skipped or read over HTTP. */
    snapshotPlace: only === 'registry' ? null : localPlaceOf(v),
    snapshotUrl: only === 'registry' ? null : v.snapshotUrl,
  };
}

/** The settings of each program, for the documentation and for the children of `start`. */
export const SETTINGS = {
  engine: engineSettings,
  worker: workerSettings,
  verifier: verifierSettings,
  publisher: publisherSettings,
  facade: facadeSettings,
  start: startSettings,
  board: boardSettings,
  witness: witnessSettings,
  monitor: monitorSettings,
  fsck: fsckSettings,
  admin: { ...databaseSettings('admin'), ...statusSettings },
};

export const settingNames = (): ReadonlySet<string> =>
  new Set([
    ...Object.values(SETTINGS).flatMap(Object.keys),
    ...FROM_FILES.map((name) => `${name}_FILE`),
  ]);

/** Reads the log level of a program before its configuration is read. */
export function readLogLevel(fallback: LogLevel, env: Environment = process.env): LogLevel {
  return LOG_LEVELS.find((level) => level === env['LOG_LEVEL']?.trim()) ?? fallback;
}
