import { resolve } from 'node:path';
import * as z from 'zod';
import { isKeyUri } from '../crypto/node.js';
import { isPostgresUrl } from '../postgres/hosts.js';
import { LOG_LEVELS } from '../process/log.js';
import { readRedisAddress } from '../queue/redis-address.js';
import { ConfigError } from './read.js';

// The description of a setting becomes its row in docs/configuration.md.

const UNIT_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration in milliseconds; the unit is seconds when omitted. */
const duration = (least: number, most: number, message: string) =>
  z
    .string()
    .transform((text) => {
      const match = /^(\d{1,9})(ms|s|m|h|d)?$/.exec(text);
      return Number(match?.[1]) * UNIT_MS[match?.[2] ?? 's']!;
    })
    .refine((value) => value >= least && value <= most, message);

export const required = (message: string): z.ZodString =>
  z.string({ error: (issue) => (issue.input === undefined ? `is not set: ${message}` : message) });

const portNumber = z
  .string()
  .regex(/^\d{1,5}$/, 'must be a port number, or 0 for any free port')
  .transform(Number)
  .refine((value) => value <= 65_535, 'must be at most 65535');

export const port = (fallback: string, of: string) =>
  portNumber.prefault(fallback).describe(`port of ${of}; 0 takes any free port`);

export const wholeNumber = (least: number, most: number, fallback: string) =>
  z
    .string()
    .regex(/^\d{1,12}$/, 'must be a whole number')
    .transform(Number)
    .refine(
      (value) => value >= least && value <= most,
      `must be from ${String(least)} to ${String(most)}`,
    )
    .prefault(fallback);

export const snapshotTtl = duration(
  2_000,
  86_400_000,
  'must be a duration from 2s to 24h, like 15m, 900s or 900',
)
  .prefault('15m')
  .describe(
    '[validity of a snapshot](deploy.md#validity-of-a-snapshot), from the end of the last expiry scan that the log records; 2s to 24h',
  );

/** In seconds. */
export const maxMergeDelay = duration(
  1_000,
  86_400_000,
  'must be a duration from 1s to 24h, like 60s',
)
  .transform((ms) => Math.ceil(ms / 1000))
  .prefault('60s')
  .describe(
    'longest time from a receipt to a checkpoint that covers its log entry; snapshots declare this time',
  );

// Half the throughput of one log, so that one tenant cannot use all of it.
export const rateLimit = wholeNumber(1, 1_000_000, '5000').describe(
  'requests per second for each tenant without a limit of its own',
);
// At least 4, because one tenant's batches may fill a quarter of the queue, and a batch has at least one item.
export const maxQueuedAdmissions = wholeNumber(4, 100_000_000, '100000').describe(
  'undecided admissions at which the engine stops accepting more; batches may use half of this number',
);
export const recentLookupLimit = wholeNumber(1, 100_000_000, '100000').describe(
  'number of the newest log entries that generic lookups (`/api/public/verify`) search',
);
export const logLevel = z
  .enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`)
  .default('info')
  .describe('`fatal` … `trace`, `silent`');
export const listenAddress = z.string().default('127.0.0.1').describe('address to listen on');
export const directory = (fallback: string) =>
  z
    .string()
    .transform((path) => resolve(path))
    .prefault(fallback);
export const dataDir = directory('.data').describe(
  'directory of the embedded database, generated keys and `ready.json`',
);
export const snapshotDir = z
  .string()
  .optional()
  .describe(
    'directory that the publisher writes and the public API reads; by default `DATA_DIR/public`',
  );
const BUCKET_MESSAGE = 'must be s3://bucket, s3://bucket/prefix, gs://bucket or gs://bucket/prefix';
const BUCKET = /^(?:s3|gs):\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[\w!*().-]+)*\/?$/;

export const snapshotStore = z
  .string()
  .regex(BUCKET, BUCKET_MESSAGE)
  .nullable()
  .default(null)
  .describe(
    '[bucket](deploy.md#a-bucket-for-the-snapshot), instead of the directory: `s3://bucket/prefix` or `gs://bucket/prefix`',
  );
export const paused = z
  .enum(['true', 'false'], 'must be true or false')
  .transform((text) => text === 'true')
  .prefault('false')
  .describe('`true`: accept and sign no admissions, even in open environments');

export interface QueueConfig {
  databaseUrl: string;
  /** The Redis with the queue; null: the queue is in the database. */
  redisUrl: string | null;
}

const VKEY = String.raw`[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]`;
const VKEYS = new RegExp(`^${VKEY}(?:,${VKEY})*$`);
const BETWEEN_VKEYS = /(?<=\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]),/;

/** A comma separates keys only after a complete key, because a key name may contain commas. */
export const splitVkeys = (list: string): string[] => list.split(BETWEEN_VKEYS);

export const witnessLogVkeys = required('name the vkeys of the logs to cosign, separated by commas')
  .regex(VKEYS, 'must be a C2SP vkey, name+hash+key, or several separated by commas')
  .transform(splitVkeys)
  .describe('vkeys of the logs to cosign, separated by commas');

export const pinsFile = z
  .string()
  .optional()
  .describe(
    'file with the public keys of the log that this program trusts: the output of `admin pins`, copied once from the operator; by default `DATA_DIR/pins.json`, which `start` writes',
  );

export const list = (what: string) =>
  z
    .string()
    .transform((text) => text.split(',').flatMap((one) => one.trim() || []))
    .prefault('')
    .describe(what);
const PLAIN_URL_MESSAGE = 'must be an http or https URL without a user, a query or a fragment';
const isLog = (where: string): boolean =>
  BUCKET.test(where) || plainUrl(where) !== null || !/^(?:s3:|gs:|[\w+.-]+:\/\/)/.test(where);
const LOG_MESSAGE = `${PLAIN_URL_MESSAGE}, a bucket like s3://bucket/prefix or gs://bucket/prefix, or a directory`;

export const monitorUrl = required(
  'name the address of the public API, a static mirror, a bucket or a snapshot directory',
)
  .refine(isLog, LOG_MESSAGE)
  .describe(
    'address of the log to follow: `https://…`, a [bucket](deploy.md#a-bucket-for-the-snapshot) as in `SNAPSHOT_STORE`, or a directory',
  );
export const monitorMirrors = list(
  'other addresses of the log to compare, separated by commas',
).refine((all) => all.every(isLog), LOG_MESSAGE);
export const monitorInterval = duration(
  100,
  86_400_000,
  'must be a duration from 100ms to 24h, like 10s',
)
  .prefault('10s')
  .describe('time between two polls by the monitor');

export const keyFile = (which: string) =>
  required(
    `name a file of mode 0600 that holds the ${which} (openssl genpkey -algorithm ed25519)`,
  ).describe(
    `file of mode 0600 with the ${which}, or [a key in an HSM or in AWS KMS](deploy.md#keys-in-an-hsm-or-in-aws-kms); \`start\` generates it below \`DATA_DIR\``,
  );

/** The file of a key that signs thousands of times per second: too often for an HSM or a KMS. */
export const aepKeyFile = z
  .string()
  .refine(
    (where) => !isKeyUri(where),
    'must be a file: an HSM or KMS signs too slowly. Name its key in AEP_ROOT_KEY_FILE',
  )
  .optional()
  .describe(
    'file of mode 0600 with the key that signs AEPs; `start` generates it below `DATA_DIR`',
  );

export const rootKeyFile = z
  .string()
  .optional()
  .describe(
    'root key, in place of `AEP_KEY_FILE`: [a key in an HSM or in AWS KMS](deploy.md#keys-in-an-hsm-or-in-aws-kms), or a file of mode 0600. The root delegates to short-lived keys that a worker keeps in memory',
  );

const POSTGRES_MESSAGE =
  'must be a URL like postgres://user:password@host:5432/database, with a percent-encoded user and password, a host that is a name or an IPv4 address, and any other `@` written as `%40`';

export const databaseUrl = (message: string) =>
  required(message)
    .refine(isPostgresUrl, POSTGRES_MESSAGE)
    .describe(
      "PostgreSQL 15 or later, with the program's own role; `start` and `demo` start an embedded server",
    );

/** A streaming replica of the database in DATABASE_URL, with the role in DATABASE_URL. */
export const databaseReadUrl = z
  .string()
  .refine(isPostgresUrl, POSTGRES_MESSAGE)
  .nullable()
  .default(null)
  .describe('a streaming replica to read from, instead of the primary');

export const redisUrl = z
  .string()
  .superRefine((text, context) => {
    const address = readRedisAddress(text);
    if (typeof address === 'string') context.addIssue({ code: 'custom', message: address });
  })
  .nullable()
  .default(null)
  .describe(
    'Redis or Valkey, or [a cluster](deploy.md#redis); by default the queue is in PostgreSQL',
  );

/** An http or https URL without a user, query or fragment; null for anything else. */
function plainUrl(text: string): URL | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url !== null && !/[?#]/.test(text) && url.username + url.password === '';
  return isPlain && /^https?:$/.test(url.protocol) ? url : null;
}

/** A public address: file names are appended to its path, and requests have no credentials. */
export const snapshotUrl = z
  .string()
  .refine((text) => plainUrl(text) !== null, PLAIN_URL_MESSAGE)
  .transform((text) => text.replace(/\/+$/, ''))
  .nullable()
  .default(null)
  .describe('URL of the snapshot, instead of the directory');

/** Must be ASCII and short, because PDFs show the URL as text and as a QR code. */
export const anyPublicUrl = z
  .string()
  .refine(
    (text) => (plainUrl(text)?.href.length ?? Infinity) <= 200,
    'must be an http or https URL like https://registry.example.org',
  )
  .transform((text) => new URL(text).href.replace(/\/+$/, ''));

export const publicUrl = anyPublicUrl
  .nullable()
  .default(null)
  .describe(
    'URL of the public API for clients: PDFs and the lookup page link to this URL, and `admin status` checks it; by default, PDFs link to `http://127.0.0.1:<PUBLIC_PORT>`, and the page has relative links and no QR codes',
  );

/** Default URL of a public API server on the same machine. */
export function localUrl(publicPort: number): string {
  if (publicPort !== 0) return `http://127.0.0.1:${String(publicPort)}`;
  throw new ConfigError([
    'PUBLIC_URL is not set: with PUBLIC_PORT 0, set the URL of the public API',
  ]);
}

export const OWNER_URL = 'set the PostgreSQL URL, with the role that owns the database';
export const ROLE_URL = (program: string): string =>
  `set the PostgreSQL URL, with the role svc_${program} (npm start runs an embedded server)`;

/** The origin of a private log in an embedded database. */
export const LOCAL_ORIGIN = 'svc.local/log';

/** A C2SP key name, which must not contain spaces or plus signs. */
export const origin = z
  .string()
  .regex(/^[^\s+]{1,200}$/, 'must be a name like example.org/log, without spaces or plus signs')
  .optional()
  .describe(
    'name of the log: first line of its checkpoints, and name of its key. Unique for each log; by default `svc.local/log`, but only with the embedded database',
  );

/**
 * Two logs with the same name look like a fork to every verifier, so only a private log may use the
 * default.
 */
export function originFor(given: string | undefined, embedded: boolean): string {
  if (embedded) return given ?? LOCAL_ORIGIN;
  if (given !== undefined && given !== LOCAL_ORIGIN) return given;
  throw new ConfigError([
    `LOG_ORIGIN ${given === undefined ? 'is not set' : `is ${LOCAL_ORIGIN}`}: with an external database, choose a log name in your own domain, like example.org/log`,
  ]);
}

export interface DrainConfig {
  /** Time in which the program serves but reports not ready, so that load balancers stop sending requests. */
  delayMs: number;
  /** Longest time in which the program may finish its work after `delayMs`; null uses the program's default. */
  deadlineMs: number | null;
}

/** Default operations ports count up from this port, in the order of `WITH_OPS_PORT`. */
const FIRST_OPS_PORT = 9464;
const WITH_OPS_PORT = [
  'engine',
  'worker',
  'verifier',
  'publisher',
  'facade',
  'board',
  'witness',
  'monitor',
] as const;
export type ServingProgram = (typeof WITH_OPS_PORT)[number];

export const defaultOpsPort = (program: ServingProgram): number =>
  FIRST_OPS_PORT + WITH_OPS_PORT.indexOf(program);

export interface OpsConfig {
  /** 0 takes any free port; null takes the program's default port, or any free port if the default port is in use. */
  port: number | null;
  bind: string;
}

/** OPS_PORT for child number `at`: child processes take consecutive ports. */
export const opsPortOf = ({ port }: OpsConfig, at: number): Record<string, string> =>
  port === null ? {} : { OPS_PORT: String(port === 0 ? 0 : port + at) };

/**
 * The ports of `count` child processes, to check that they are free; empty when the system chooses
 * them.
 */
export function opsPortsOf({ port, bind }: OpsConfig, count: number) {
  if (port === null || port === 0) return [];
  if (port + count > 65_536) {
    throw new ConfigError([
      `OPS_PORT is ${String(port)}, too high for ${String(count)} processes: each has its own port, and the last port would exceed 65535`,
    ]);
  }
  return Array.from({ length: count }, (_, at) => ({
    host: bind,
    port: port + at,
    portVariable: 'OPS_PORT',
    hostVariable: 'OPS_BIND',
  }));
}

/** The settings of every program that serves. */
export const processSettings = {
  OPS_PORT: portNumber
    .nullable()
    .default(null)
    .describe(
      `port of \`/healthz\`, \`/readyz\` and \`/metrics\`: see [metrics](runbooks.md#metrics-and-readiness); by default ${WITH_OPS_PORT.map((program) => `${program} ${String(defaultOpsPort(program))}`).join(', ')}`,
    ),
  OPS_BIND: listenAddress.describe('address of the operations listener'),
  SHUTDOWN_DELAY: duration(0, 300_000, 'must be a duration from 0 to 5m, like 10s')
    .prefault('0')
    .describe('how long engine and public API server accept connections after SIGTERM'),
  SHUTDOWN_TIMEOUT: duration(500, 3_600_000, 'must be a duration from 500ms to 1h, like 25s')
    .nullable()
    .default(null)
    .describe(
      'how long a program may finish its work after SHUTDOWN_DELAY; by default 25s, for `facade` 40s, for `start` 2m',
    ),
  LOG_LEVEL: logLevel,
};

export const tracingSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: z
    .string()
    .refine((text) => plainUrl(text) !== null, 'must be an http or https URL')
    .nullable()
    .default(null)
    .describe(
      'OTLP/HTTP collector of [traces](runbooks.md#traces); by default programs send no traces',
    ),
};

export const traceRatio = z
  .string()
  .regex(/^(0(\.\d+)?|1(\.0+)?)$/, 'must be a number from 0 to 1')
  .default('1')
  .transform(Number)
  .describe('share of the requests without a valid `traceparent` that are traced, from 0 to 1');
