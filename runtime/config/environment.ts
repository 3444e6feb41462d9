import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { OperatorError } from '../process/operator-error.js';

/** The process environment, or a test's replacement. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Lists every configuration problem, each with the setting to change. */
export class ConfigError extends OperatorError {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`Invalid configuration:\n${problems.map((one) => `  - ${one}`).join('\n')}`);
    this.problems = problems;
  }
}

/**
 * Variables with secrets or trusted keys, which can be read from a file, e.g. `DATABASE_URL_FILE`.
 */
const FROM_FILES: readonly string[] = [
  'DATABASE_URL',
  'DATABASE_READ_URL',
  'REDIS_URL',
  'LOG_VKEY',
  'SNAPSHOT_VKEY',
];

const LONGEST_FILE = 64 * 1024;

/** A value, or the problem with its file. Never quotes the file. */
type Found = { value?: string } | { problem: string };

function fromFile(variable: string, file: string): Found {
  let value;
  try {
    value = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    return { problem: `${variable} names ${file}, which cannot be read (${code})` };
  }
  if (value === '') return { problem: `${variable} names ${file}, which is empty` };
  if (value.length <= LONGEST_FILE) return { value };
  return { problem: `${variable} names ${file}, which is too long` };
}

function find(env: Environment, name: string): Found {
  const given = env[name]?.trim() ?? '';
  const variable = `${name}_FILE`;
  const file = FROM_FILES.includes(name) ? (env[variable]?.trim() ?? '') : '';
  if (file === '') return given === '' ? {} : { value: given };
  if (given === '') return fromFile(variable, file);
  return { problem: `${name} and ${variable} are both set: keep one of them` };
}

type Camel<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<Camel<Rest>>}`
  : Lowercase<Name>;

/** Settings by name: `databaseUrl` for DATABASE_URL. */
export type Values<Shape extends z.ZodRawShape> = {
  [Name in keyof Shape & string as Camel<Name>]: z.output<Shape[Name]>;
};

const camel = (name: string): string =>
  name.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

/** Treats an empty variable as unset, and ignores variables outside `shape`. */
export function read<Shape extends z.ZodRawShape>(shape: Shape, env: Environment): Values<Shape> {
  const given: Record<string, string> = {};
  const problems = new Map<string, string>();
  for (const name of Object.keys(shape)) {
    const found = find(env, name);
    if ('problem' in found) problems.set(name, found.problem);
    else if (found.value !== undefined) given[name] = found.value;
  }
  const result = z.object(shape).safeParse(given);
  if (result.success && problems.size === 0) {
    const values = Object.entries(result.data).map(([name, value]) => [camel(name), value]);
    return Object.fromEntries(values) as Values<Shape>;
  }
  // A variable with an unusable file is reported once.
  const issues = (result.error?.issues ?? []).filter(({ path }) => !problems.has(String(path[0])));
  throw new ConfigError([
    ...problems.values(),
    ...issues.map((issue) => `${issue.path.join('.')} ${issue.message}`),
  ]);
}
