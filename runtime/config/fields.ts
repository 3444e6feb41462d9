import * as z from 'zod';
import { LOG_LEVELS } from '../process/log.js';
import { readRedisAddress } from '../queue/redis-address.js';
import { ConfigError } from './environment.js';

const UNIT_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export function durationMs(text: string): number | null {
  const match = /^(\d{1,9})(ms|s|m|h|d)?$/.exec(text);
  if (match === null) return null;
  return Number(match[1]) * (UNIT_MS[match[2] ?? 's'] ?? 0);
}

export const required = (message: string): z.ZodString =>
  z.string({ error: (issue) => (issue.input === undefined ? `is not set: ${message}` : message) });

export const port = (fallback: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^\d{1,5}$/, 'must be a port number, or 0 for any free one')
    .transform(Number)
    .refine((value) => value <= 65_535, 'must be at most 65535')
    .default(fallback);

export const wholeNumber = (least: number, most: number, fallback: number): z.ZodType<number> =>
  z
    .string()
    .regex(/^\d{1,12}$/, 'must be a whole number')
    .transform(Number)
    .refine(
      (value) => value >= least && value <= most,
      `must be from ${String(least)} to ${String(most)}`,
    )
    .default(fallback);

export const snapshotTtl = z
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

export const rateLimit = wholeNumber(1, 1_000_000, 5_000);
export const maxQueuedAdmissions = wholeNumber(1, 100_000_000, 100_000);

export const recentLookupLimit = wholeNumber(1, 100_000_000, 100_000);

export const logLevel = z
  .enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`)
  .default('info');
export const listenAddress = z.string().default('127.0.0.1');
export const dataDir = z.string().default('.data');
export const paused = z.enum(['true', 'false'], 'must be true or false').default('false');

/** For programs that enqueue or process jobs. */
export interface QueueConfig {
  databaseUrl: string;
  /** Null: the queue is in the database. */
  redisUrl: string | null;
}

const VKEY = String.raw`[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]`;
const VKEYS = new RegExp(`^${VKEY}(?:,${VKEY})*$`);
/** A comma after a complete key: commas in key names do not separate. */
const BETWEEN_VKEYS = /(?<=\+[0-9a-f]{8}\+[A-Za-z0-9+/]{43}[A-Za-z0-9+/=]),/;

const vkeyList = (text: z.ZodString): z.ZodType<[string, ...string[]]> =>
  text
    .regex(VKEYS, 'must be a C2SP verifier key, name+hash+key, or several separated by commas')
    .transform((list) => list.split(BETWEEN_VKEYS) as [string, ...string[]]);

export const vkeys = (which: string): z.ZodType<[string, ...string[]]> =>
  vkeyList(
    required(
      `pin the ${which}'s public key, name+hash+key, as published by the publisher's operator`,
    ),
  );
export const retiredVkeys = vkeyList(z.string()).optional();

export const keyFile = (which: string): z.ZodType<string> =>
  required(`name a file of mode 0600 that holds the ${which} (openssl genpkey -algorithm ed25519)`);

const POSTGRES_URL = /^postgres(ql)?:\/\/\S+$/;
const POSTGRES_SAY = 'must be a URL like postgres://user:password@host:5432/database';

export const databaseUrl = (message: string): z.ZodType<string> =>
  required(message).regex(POSTGRES_URL, POSTGRES_SAY);

/** A streaming replica of the same database, for the same role. */
export const databaseReadUrl = z.string().regex(POSTGRES_URL, POSTGRES_SAY).optional();

export const redisUrl = z
  .string()
  .superRefine((text, context) => {
    const address = readRedisAddress(text);
    if (typeof address === 'string') context.addIssue({ code: 'custom', message: address });
  })
  .optional();

/** An http or https URL without a user, query or fragment; null for anything else. */
function plainUrl(text: string): URL | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url !== null && url.search + url.hash + url.username + url.password === '';
  return isPlain && /^https?:$/.test(url.protocol) ? url : null;
}

/** File names are appended to its path; it must be public. */
export const snapshotUrl = z
  .string()
  .refine(
    (text) => plainUrl(text) !== null,
    'must be an http or https URL without a user, a query or a fragment',
  )
  .transform((text) => text.replace(/\/+$/, ''))
  .optional();

/** Printed and encoded as a QR code, so it is ASCII and short. */
export const publicUrl = z.string().transform((text, context) => {
  const url = plainUrl(text);
  if (url !== null && url.href.length <= 200) return url.href.replace(/\/+$/, '');
  context.addIssue({
    code: 'custom',
    message: 'must be an http or https URL like https://registry.example.org',
  });
  return z.NEVER;
});

/** Default URL of a public API server on the same machine. */
export function localUrl(publicPort: number): string {
  if (publicPort !== 0) return `http://127.0.0.1:${String(publicPort)}`;
  throw new ConfigError([
    'PUBLIC_URL is not set: with PUBLIC_PORT 0, set the URL of the public API',
  ]);
}

export const OWNER_URL = 'name the Postgres database, with the role of its owner';
export const ROLE_URL = (program: string): string =>
  `name the Postgres database, with the role svc_${program} (npm start runs an embedded one)`;

/** The origin of a private log in an embedded database. */
export const LOCAL_ORIGIN = 'svc.local/log';

/** Derives the snapshot key's name from the log key's; the names must differ. */
export function snapshotNameFor(logOrigin: string): string {
  return `${logOrigin.replace(/\/log$/, '')}/snapshot`;
}

/** A C2SP key name, which must not contain spaces or plus signs. */
export const origin = z
  .string()
  .regex(/^[^\s+]{1,200}$/, 'must be a name like example.org/log, without spaces or plus signs');

/**
 * Two logs with one name look like a fork to every follower, so only a private log may use the
 * default.
 */
export function originFor(given: string | undefined, embedded: boolean): string {
  if (embedded) return given ?? LOCAL_ORIGIN;
  if (given !== undefined && given !== LOCAL_ORIGIN) return given;
  throw new ConfigError([
    `LOG_ORIGIN ${given === undefined ? 'is not set' : `is ${LOCAL_ORIGIN}`}: with an external database, choose a log name in your own domain, like example.org/log`,
  ]);
}
