import { writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { pino, stdSerializers, type Logger } from 'pino';
import { version } from './files.js';

export type { Logger };

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Distinguishes this process from others of the same program. */
export const instance = `${hostname()}:${process.pid}`;

/** Field names that can carry a secret; pino redacts them at every level. */
const SECRET_NAMES = [
  'password',
  'secret',
  'apiKey',
  'api_key',
  'privateKey',
  'databaseUrl',
  'redisUrl',
  'ownerUrl',
  'superuserUrl',
  'connectionString',
  'authorization',
  // Member of Redis errors with the rejected command: AUTH contains the password.
  'command',
  '["x-svc-api-key"]',
];
const paths = SECRET_NAMES.flatMap((name) =>
  name.startsWith('[') ? [name, `*${name}`, `*.*${name}`] : [name, `*.${name}`, `*.*.${name}`],
);

/**
 * Members of a Postgres error that quote rows: key values, whole rows, statements and parameters.
 */
const ROW_FIELDS = ['detail', 'where', 'query', 'internal_query', 'parameters', 'args'];

/** Serializes an error without quoted user data. Causes are reduced to their stack. */
function serializeError(error: unknown): unknown {
  return error instanceof Error ? withoutRows({ ...stdSerializers.err(error) }) : error;
}

function withoutRows(fields: Record<string, unknown>): Record<string, unknown> {
  const kept = Object.entries(fields).filter(([name]) => !ROW_FIELDS.includes(name));
  const { aggregateErrors: others, ...plain } = Object.fromEntries(kept);
  if (!Array.isArray(others)) return plain;
  return { ...plain, aggregateErrors: (others as Record<string, unknown>[]).map(withoutRows) };
}

const BUSY_PAUSE_MS = 100;
const pause = new Int32Array(new SharedArrayBuffer(4));

/** Lines that could not be written since the last line of a logger. */
let unwritten = 0;
let isCutOff = false;

/**
 * Writes a line to stderr, and drops the line on a full disk or a closed pipe: an error would stop the program, and
 * pino's own destination blocks the program until the disk has room. Returns whether the line was written.
 */
export function writeLine(line: string): boolean {
  let rest = Buffer.from(isCutOff ? `\n${line}` : line);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(2, rest));
      isCutOff = true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EAGAIN') {
        Atomics.wait(pause, 0, 0, BUSY_PAUSE_MS);
        continue;
      }
      unwritten += 1;
      return false;
    }
  }
  isCutOff = false;
  return true;
}

/** Writes a line of a logger, which reports `unwritten`; the forwarded lines of a child do not. */
function write(line: string): void {
  if (writeLine(line)) unwritten = 0;
}

/** Writes JSON lines to stderr; stdout is for command output. */
export function logger(program: string, level: LogLevel = 'info'): Logger {
  return pino(
    {
      level,
      base: { program, version, instance },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths, censor: '[secret]' },
      serializers: { err: serializeError },
      mixin: () => (unwritten > 0 ? { unlogged: unwritten } : {}),
    },
    { write },
  );
}

const RARELY_MS = 10_000;
const repeated = new WeakMap<object, Map<string, { at: number; unlogged: number }>>();

/**
 * Logs a message at most once in ten seconds, because a lasting fault repeats it many times per
 * second; `unlogged` counts what was left out since the last line.
 */
export function logRarely<Level extends 'warn' | 'error'>(
  log: Pick<Logger, Level>,
  level: Level,
  fields: object,
  message: string,
): void {
  const messages = repeated.get(log) ?? new Map<string, { at: number; unlogged: number }>();
  repeated.set(log, messages);
  const last = messages.get(message) ?? { at: -Infinity, unlogged: 0 };
  messages.set(message, last);
  const now = performance.now();
  if (now - last.at < RARELY_MS) {
    last.unlogged += 1;
    return;
  }
  // The field replaces the one that a logger adds.
  const unlogged = last.unlogged + unwritten;
  const lost = unwritten;
  log[level]({ ...fields, ...(unlogged > 0 && { unlogged }) }, message);
  messages.set(message, { at: now, unlogged: unwritten > lost ? last.unlogged : 0 });
}
