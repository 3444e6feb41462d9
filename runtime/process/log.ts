import { pino, stdSerializers, type Logger } from 'pino';

export type { Logger };

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Names under which a secret could reach a log line; pino censors them wherever they stand. */
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
  // What Redis refused: its AUTH carries the password.
  'command',
  '["x-svc-api-key"]',
];
const paths = SECRET_NAMES.flatMap((name) =>
  name.startsWith('[') ? [name, `*${name}`, `*.*${name}`] : [name, `*.${name}`, `*.*.${name}`],
);

/**
 * What a Postgres error says beside its message, and it says it of rows: values of a key that is
 * taken, the whole row that a check refuses, a statement and what it was given.
 */
const OF_ROWS = ['detail', 'where', 'query', 'internal_query', 'parameters', 'args'];

/** An error without what it may quote of what somebody sent. Of those that caused it only the stack is told. */
function plainly(error: unknown): unknown {
  return error instanceof Error ? withoutRows({ ...stdSerializers.err(error) }) : error;
}

function withoutRows(told: Record<string, unknown>): Record<string, unknown> {
  const kept = Object.entries(told).filter(([name]) => !OF_ROWS.includes(name));
  const { aggregateErrors: others, ...plain } = Object.fromEntries(kept);
  if (!Array.isArray(others)) return plain;
  return { ...plain, aggregateErrors: (others as Record<string, unknown>[]).map(withoutRows) };
}

/** JSON lines on stderr, so that stdout stays free for what a program has to say to a person. */
export function logger(program: string, level: LogLevel = 'info'): Logger {
  return pino(
    {
      level,
      base: { program },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths, censor: '[secret]' },
      serializers: { err: plainly },
    },
    pino.destination({ fd: 2, sync: true }),
  );
}
