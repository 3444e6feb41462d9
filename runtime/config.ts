import { join, resolve } from 'node:path';
import { z } from 'zod';
import { LOG_LEVELS, type LogLevel } from './log.js';
import { OperatorError } from './operator-error.js';

/** The process environment, or what a test passes in its stead. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Every problem of the configuration at once, each saying what to set. */
export class ConfigError extends OperatorError {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`The configuration is not usable:\n${problems.map((one) => `  - ${one}`).join('\n')}`);
    this.problems = problems;
  }
}

/** The origin of a log that lives in an embedded database and is nobody else's business. */
export const LOCAL_ORIGIN = 'svc.local/log';

/** The snapshot key's name beside the log key's, so that neither can be taken for the other. */
export function snapshotNameFor(logOrigin: string): string {
  return `${logOrigin.replace(/\/log$/, '')}/snapshot`;
}

const UNIT_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

function durationMs(text: string): number | null {
  const match = /^(\d{1,9})(ms|s|m|h|d)?$/.exec(text);
  if (match === null) return null;
  return Number(match[1]) * (UNIT_MS[match[2] ?? 's'] ?? 0);
}

const required = (say: string): z.ZodString =>
  z.string({ error: (issue) => (issue.input === undefined ? `is not set: ${say}` : say) });

const databaseUrl = (say: string): z.ZodType<string> =>
  required(say).regex(
    /^postgres(ql)?:\/\/\S+$/,
    'must be a URL like postgres://user:password@host:5432/database',
  );

const redisUrl = z
  .string()
  .regex(
    /^rediss?:\/\/[^\s,]+(,rediss?:\/\/[^\s,]+)*$/,
    'must be a URL like redis://host:6379, or several of a cluster separated by commas',
  )
  .optional();

const port = (fallback: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^\d{1,5}$/, 'must be a port number, or 0 for any free one')
    .transform(Number)
    .refine((value) => value <= 65_535, 'must be at most 65535')
    .default(fallback);

const wholeNumber = (least: number, most: number, fallback: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^\d{1,12}$/, 'must be a whole number')
    .transform(Number)
    .refine(
      (value) => value >= least && value <= most,
      `must be from ${String(least)} to ${String(most)}`,
    )
    .default(fallback);

const validFor = z
  .string()
  .transform((text, context) => {
    const value = durationMs(text);
    if (value !== null && value >= 2_000 && value <= 30 * 86_400_000) return value;
    context.addIssue({
      code: 'custom',
      message: 'must be a duration from 2s to 30d, like 15m, 900s or 900',
    });
    return z.NEVER;
  })
  .default(15 * 60_000);

/** A C2SP key name; what stands between spaces and plus signs elsewhere must not hold any. */
const origin = z
  .string()
  .regex(/^[^\s+]{1,200}$/, 'must be a name like example.org/log, without spaces or plus signs');

const VKEY = String.raw`[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]`;
const VKEYS = new RegExp(`^${VKEY}(?:,${VKEY})*$`);
/** A comma after a whole key: one in a name separates nothing. */
const BETWEEN_VKEYS = /(?<=\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]),/;

const vkeyList = (text: z.ZodString): z.ZodType<[string, ...string[]]> =>
  text
    .regex(VKEYS, 'must be a C2SP verifier key, name+hash+key, or several separated by commas')
    .transform((list) => list.split(BETWEEN_VKEYS) as [string, ...string[]]);

const vkeys = (which: string): z.ZodType<[string, ...string[]]> =>
  vkeyList(
    required(`pin the ${which}'s public key, name+hash+key, as the publisher's operator gave it`),
  );
const retiredVkeys = vkeyList(z.string()).optional();

const keyFile = (which: string): z.ZodType<string> =>
  required(`name a file of mode 0600 that holds the ${which} (openssl genpkey -algorithm ed25519)`);

/** Files are asked for below it, so nothing may follow its path; what it names must be public. */
const snapshotUrl = z
  .string()
  .refine((text) => {
    const url = URL.canParse(text) ? new URL(text) : null;
    const isPlain = url !== null && url.search + url.hash + url.username + url.password === '';
    return isPlain && /^https?:$/.test(url.protocol);
  }, 'must be an http or https URL without a user, a query or a fragment')
  .transform((text) => text.replace(/\/+$/, ''))
  .optional();

/** Printed, and made into a QR code, so it is plain ASCII and not long. */
const publicUrl = z.string().transform((text, context) => {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url !== null && url.search + url.hash + url.username + url.password === '';
  if (isPlain && /^https?:$/.test(url.protocol) && url.href.length <= 200) {
    return url.href.replace(/\/+$/, '');
  }
  context.addIssue({
    code: 'custom',
    message: 'must be an http or https URL like https://registry.example.org',
  });
  return z.NEVER;
});

/** Where a facade of the same machine serves by default. */
function localUrl(publicPort: number): string {
  if (publicPort !== 0) return `http://127.0.0.1:${String(publicPort)}`;
  throw new ConfigError([
    'PUBLIC_URL is not set: with PUBLIC_PORT 0, say where the public API is reached',
  ]);
}

const logLevel = z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`).default('info');
const bind = z.string().default('127.0.0.1');
const dataDir = z.string().default('.data');
const locked = z
  .literal('locked', 'must be "locked", or unset to follow the lane state in the database')
  .optional();

const OWNER_URL = 'name the Postgres database, as its owner';
const ROLE_URL = (program: string): string =>
  `name the Postgres database, with the role svc_${program} (npm start brings up one of its own)`;

/** An empty variable counts as unset; variables that `shape` does not name are never looked at. */
function read<Shape extends z.ZodRawShape>(
  env: Environment,
  shape: Shape,
): z.output<z.ZodObject<Shape>> {
  const given = Object.fromEntries(
    Object.keys(shape)
      .map((name) => [name, env[name]?.trim()] as const)
      .filter(([, value]) => value !== undefined && value !== ''),
  );
  const result = z.object(shape).safeParse(given);
  if (result.success) return result.data;
  throw new ConfigError(
    result.error.issues.map((issue) => `${issue.path.join('.')} ${issue.message}`),
  );
}

export interface QueueConfig {
  databaseUrl: string;
  /** Null: the queue is in the database. */
  redisUrl: string | null;
}

export interface EngineConfig extends QueueConfig {
  /** Requests a second of a tenant that has no limit of its own. */
  rateLimit: number;
  /** Admissions waiting to be settled from which on no more are accepted. */
  maxPending: number;
  bind: string;
  port: number;
  /** The public API's base URL, as others reach it: exported papers lead there. */
  publicUrl: string;
  /** Named in exports; null leaves it out of them. */
  logVkey: string | null;
  /** Named in exports under checkpoints that these signed. */
  retiredLogVkeys: string[];
  liveExecutionLocked: boolean;
  logLevel: LogLevel;
}

export function engineConfig(env: Environment = process.env): EngineConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('engine')),
    REDIS_URL: redisUrl,
    BIND: bind,
    ENGINE_PORT: port(8080),
    RATE_LIMIT: rateLimit,
    MAX_PENDING: maxPending,
    PUBLIC_URL: publicUrl.optional(),
    PUBLIC_PORT: port(8081),
    LOG_VKEY: vkeys('log').optional(),
    LIVE_EXECUTION: locked,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    bind: v.BIND,
    port: v.ENGINE_PORT,
    rateLimit: v.RATE_LIMIT,
    maxPending: v.MAX_PENDING,
    publicUrl: v.PUBLIC_URL ?? localUrl(v.PUBLIC_PORT),
    logVkey: v.LOG_VKEY?.[0] ?? null,
    retiredLogVkeys: v.LOG_VKEY?.slice(1) ?? [],
    liveExecutionLocked: v.LIVE_EXECUTION === 'locked',
    logLevel: v.LOG_LEVEL,
  };
}

export interface WorkerConfig extends QueueConfig {
  aepKeyFile: string;
  liveExecutionLocked: boolean;
  logLevel: LogLevel;
}

export function workerConfig(env: Environment = process.env): WorkerConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('worker')),
    REDIS_URL: redisUrl,
    AEP_KEY_FILE: keyFile('key that signs AEPs'),
    LIVE_EXECUTION: locked,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    aepKeyFile: v.AEP_KEY_FILE,
    liveExecutionLocked: v.LIVE_EXECUTION === 'locked',
    logLevel: v.LOG_LEVEL,
  };
}

export interface VerifierConfig extends QueueConfig {
  logLevel: LogLevel;
}

export function verifierConfig(env: Environment = process.env): VerifierConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('verifier')),
    REDIS_URL: redisUrl,
    LOG_LEVEL: logLevel,
  });
  return {
    databaseUrl: v.DATABASE_URL,
    redisUrl: v.REDIS_URL ?? null,
    logLevel: v.LOG_LEVEL,
  };
}

export interface PublisherConfig {
  databaseUrl: string;
  logKeyFile: string;
  snapshotKeyFile: string;
  /** Verifier keys of what signed before the keys in these files. */
  retiredLogVkeys: string[];
  retiredSnapshotVkeys: string[];
  /** The log key's name and the checkpoints' first line. */
  logOrigin: string;
  /** The snapshot key's name. */
  snapshotName: string;
  snapshotDir: string;
  snapshotValidForMs: number;
  /** The newest so many proofs answer generic lookups. */
  windowProofs: number;
  logLevel: LogLevel;
}

/** Two logs under one name are a fork to everyone who follows it: only a private one may use the default. */
function originFor(given: string | undefined, embedded: boolean): string {
  if (embedded) return given ?? LOCAL_ORIGIN;
  if (given !== undefined && given !== LOCAL_ORIGIN) return given;
  throw new ConfigError([
    `LOG_ORIGIN ${given === undefined ? 'is not set' : `is ${LOCAL_ORIGIN}`}: with a database of your own, name the log by something that is yours, like example.org/log`,
  ]);
}

const rateLimit = wholeNumber(1, 1_000_000, 5_000);
const maxPending = wholeNumber(1, 100_000_000, 100_000);

const windowProofs = wholeNumber(1, 100_000_000, 100_000);

export function publisherConfig(env: Environment = process.env): PublisherConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(ROLE_URL('publisher')),
    LOG_KEY_FILE: keyFile('key that signs checkpoints'),
    SNAPSHOT_KEY_FILE: keyFile('key that signs snapshots'),
    LOG_RETIRED_VKEYS: retiredVkeys,
    SNAPSHOT_RETIRED_VKEYS: retiredVkeys,
    LOG_ORIGIN: origin.optional(),
    // Set by `start` for its children only: the database is the embedded one.
    EMBEDDED_DATABASE: z.literal('yes').optional(),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    SNAPSHOT_VALID_FOR: validFor,
    WINDOW_PROOFS: windowProofs,
    LOG_LEVEL: logLevel,
  });
  const logOrigin = originFor(v.LOG_ORIGIN, v.EMBEDDED_DATABASE === 'yes');
  return {
    databaseUrl: v.DATABASE_URL,
    logKeyFile: v.LOG_KEY_FILE,
    snapshotKeyFile: v.SNAPSHOT_KEY_FILE,
    retiredLogVkeys: v.LOG_RETIRED_VKEYS ?? [],
    retiredSnapshotVkeys: v.SNAPSHOT_RETIRED_VKEYS ?? [],
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    snapshotDir: resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public')),
    snapshotValidForMs: v.SNAPSHOT_VALID_FOR,
    windowProofs: v.WINDOW_PROOFS,
    logLevel: v.LOG_LEVEL,
  };
}

export interface FacadeConfig {
  /** Null when the snapshot is read over http. */
  snapshotDir: string | null;
  snapshotUrl: string | null;
  /** The pinned keys: the one in use, and while it is being changed the other as well. */
  logVkeys: string[];
  snapshotVkeys: string[];
  bind: string;
  port: number;
  /** How many processes serve that port. */
  processes: number;
  /** Where others reach this facade; null: links to share are made of the host that was asked. */
  publicUrl: string | null;
  windowProofs: number;
  logLevel: LogLevel;
}

/** Names no database, queue or secret, so that whoever takes over a facade takes over none of them. */
export function facadeConfig(env: Environment = process.env): FacadeConfig {
  const v = read(env, {
    LOG_VKEY: vkeys('log'),
    SNAPSHOT_VKEY: vkeys('snapshot'),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    SNAPSHOT_URL: snapshotUrl,
    BIND: bind,
    PUBLIC_PORT: port(8081),
    PUBLIC_PROCESSES: wholeNumber(1, 256, 1),
    PUBLIC_URL: publicUrl.optional(),
    WINDOW_PROOFS: windowProofs,
    LOG_LEVEL: logLevel,
  });
  const snapshotUrlGiven = v.SNAPSHOT_URL ?? null;
  return {
    snapshotDir:
      snapshotUrlGiven === null ? resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public')) : null,
    snapshotUrl: snapshotUrlGiven,
    logVkeys: v.LOG_VKEY,
    snapshotVkeys: v.SNAPSHOT_VKEY,
    bind: v.BIND,
    port: v.PUBLIC_PORT,
    processes: v.PUBLIC_PROCESSES,
    publicUrl: v.PUBLIC_URL ?? null,
    windowProofs: v.WINDOW_PROOFS,
    logLevel: v.LOG_LEVEL,
  };
}

export interface AdminConfig {
  databaseUrl: string;
  logLevel: LogLevel;
}

export function adminConfig(env: Environment = process.env): AdminConfig {
  const v = read(env, { DATABASE_URL: databaseUrl(ROLE_URL('admin')), LOG_LEVEL: logLevel });
  return { databaseUrl: v.DATABASE_URL, logLevel: v.LOG_LEVEL };
}

/** What a check from the outside trusts: a public key, or the file of the private one it belongs to. */
export type TrustedKey = { vkeys: string[] } | { name: string; keyFile: string };

export interface FsckConfig {
  /** Null when the registry is left out. */
  databaseUrl: string | null;
  logKey: TrustedKey;
  snapshotKey: TrustedKey;
  /** Null when the snapshot is left out, or read over http. */
  snapshotDir: string | null;
  snapshotUrl: string | null;
  snapshotValidForMs: number;
  dataDir: string;
  logLevel: LogLevel;
}

/** @param only the half that is looked at; null for both */
export function fsckConfig(
  only: 'registry' | 'snapshot' | null,
  env: Environment = process.env,
): FsckConfig {
  const v = read(env, {
    DATABASE_URL: only === 'snapshot' ? databaseUrl('').optional() : databaseUrl(ROLE_URL('fsck')),
    LOG_VKEY: vkeys('log').optional(),
    SNAPSHOT_VKEY: vkeys('snapshot').optional(),
    LOG_KEY_FILE: z.string().optional(),
    SNAPSHOT_KEY_FILE: z.string().optional(),
    LOG_ORIGIN: origin.default(LOCAL_ORIGIN),
    DATA_DIR: dataDir,
    SNAPSHOT_DIR: z.string().optional(),
    SNAPSHOT_URL: snapshotUrl,
    SNAPSHOT_VALID_FOR: validFor,
    LOG_LEVEL: logLevel,
  });
  const trusted = (pinned: string[] | undefined, keyFile: string | undefined, name: string) => {
    if (pinned !== undefined) return { vkeys: pinned };
    return keyFile === undefined ? null : { name, keyFile };
  };
  const logKey = trusted(v.LOG_VKEY, v.LOG_KEY_FILE, v.LOG_ORIGIN);
  const snapshotName = snapshotNameFor(v.LOG_ORIGIN);
  const snapshotKey = trusted(v.SNAPSHOT_VKEY, v.SNAPSHOT_KEY_FILE, snapshotName);
  const pin = (variable: string, which: string): string =>
    `${variable}_VKEY is not set: pin the ${which}'s public key, or name its file in ${variable}_KEY_FILE`;
  if (logKey === null) throw new ConfigError([pin('LOG', 'log')]);
  if (snapshotKey === null && only !== 'registry') {
    throw new ConfigError([pin('SNAPSHOT', 'snapshot')]);
  }
  const url = v.SNAPSHOT_URL ?? null;
  const directory = resolve(v.SNAPSHOT_DIR ?? join(v.DATA_DIR, 'public'));
  return {
    databaseUrl: only === 'snapshot' ? null : (v.DATABASE_URL ?? null),
    logKey,
    snapshotKey: snapshotKey ?? logKey,
    snapshotDir: only === 'registry' || url !== null ? null : directory,
    snapshotUrl: only === 'registry' ? null : url,
    snapshotValidForMs: v.SNAPSHOT_VALID_FOR,
    dataDir: resolve(v.DATA_DIR),
    logLevel: v.LOG_LEVEL,
  };
}

export interface MigrateConfig extends QueueConfig {
  logLevel: LogLevel;
}

export function migrateConfig(env: Environment = process.env): MigrateConfig {
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

export interface StartConfig {
  /** The owner's connection; null brings up the embedded database. */
  databaseUrl: string | null;
  redisUrl: string | null;
  dataDir: string;
  bind: string;
  enginePort: number;
  publicPort: number;
  /** The public API's base URL, as others reach it; null: where the facade turns out to serve. */
  publicUrl: string | null;
  rateLimit: number;
  maxPending: number;
  snapshotDir: string;
  aepKeyFile: string;
  logKeyFile: string;
  snapshotKeyFile: string;
  retiredLogVkeys: string[];
  retiredSnapshotVkeys: string[];
  logOrigin: string;
  /** The snapshot key's name. */
  snapshotName: string;
  snapshotValidForMs: number;
  windowProofs: number;
  liveExecutionLocked: boolean;
  logLevel: LogLevel;
}

export function startConfig(env: Environment = process.env): StartConfig {
  const v = read(env, {
    DATABASE_URL: databaseUrl(OWNER_URL).optional(),
    REDIS_URL: redisUrl,
    DATA_DIR: dataDir,
    BIND: bind,
    ENGINE_PORT: port(8080),
    PUBLIC_PORT: port(8081),
    PUBLIC_URL: publicUrl.optional(),
    RATE_LIMIT: rateLimit,
    MAX_PENDING: maxPending,
    SNAPSHOT_DIR: z.string().optional(),
    AEP_KEY_FILE: z.string().optional(),
    LOG_KEY_FILE: z.string().optional(),
    SNAPSHOT_KEY_FILE: z.string().optional(),
    LOG_RETIRED_VKEYS: retiredVkeys,
    SNAPSHOT_RETIRED_VKEYS: retiredVkeys,
    LOG_ORIGIN: origin.optional(),
    SNAPSHOT_VALID_FOR: validFor,
    WINDOW_PROOFS: windowProofs,
    LIVE_EXECUTION: locked,
    LOG_LEVEL: logLevel,
  });
  const logOrigin = originFor(v.LOG_ORIGIN, v.DATABASE_URL === undefined);
  const data = resolve(v.DATA_DIR);
  const file = (given: string | undefined, name: string): string =>
    resolve(given ?? join(data, name));
  return {
    databaseUrl: v.DATABASE_URL ?? null,
    redisUrl: v.REDIS_URL ?? null,
    dataDir: data,
    bind: v.BIND,
    enginePort: v.ENGINE_PORT,
    publicPort: v.PUBLIC_PORT,
    publicUrl: v.PUBLIC_URL ?? null,
    rateLimit: v.RATE_LIMIT,
    maxPending: v.MAX_PENDING,
    snapshotDir: file(v.SNAPSHOT_DIR, 'public'),
    aepKeyFile: file(v.AEP_KEY_FILE, 'aep-key.pem'),
    logKeyFile: file(v.LOG_KEY_FILE, 'log-key.pem'),
    snapshotKeyFile: file(v.SNAPSHOT_KEY_FILE, 'snapshot-key.pem'),
    retiredLogVkeys: v.LOG_RETIRED_VKEYS ?? [],
    retiredSnapshotVkeys: v.SNAPSHOT_RETIRED_VKEYS ?? [],
    logOrigin,
    snapshotName: snapshotNameFor(logOrigin),
    snapshotValidForMs: v.SNAPSHOT_VALID_FOR,
    windowProofs: v.WINDOW_PROOFS,
    liveExecutionLocked: v.LIVE_EXECUTION === 'locked',
    logLevel: v.LOG_LEVEL,
  };
}

/** A stack of its own beside whatever runs already: nothing of the environment counts but the log level. */
export function demoConfig(dataDir: string, env: Environment = process.env): StartConfig {
  return startConfig({
    DATA_DIR: dataDir,
    ENGINE_PORT: '0',
    PUBLIC_PORT: '0',
    LOG_LEVEL: env['LOG_LEVEL'] || 'error',
  });
}

/** For a program that has not read its own configuration yet. */
export function readLogLevel(fallback: LogLevel, env: Environment = process.env): LogLevel {
  return LOG_LEVELS.find((level) => level === env['LOG_LEVEL']?.trim()) ?? fallback;
}
