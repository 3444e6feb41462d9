import { pino, type Logger } from 'pino';

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

/** JSON lines on stderr, so that stdout stays free for what a program has to say to a person. */
export function logger(program: string, level: LogLevel = 'info'): Logger {
  return pino(
    {
      level,
      base: { program },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths, censor: '[secret]' },
    },
    pino.destination({ fd: 2, sync: true }),
  );
}
