import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { safeParse } from '#protocol/schemas/messages';
import { readPrivateFile } from '../process/files.js';
import { OperatorError } from '../process/operator-error.js';
import { OF_KUBERNETES, refusedVariables } from './refused.js';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Lists every configuration problem, each with the setting to change. */
export class ConfigError extends OperatorError {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`Invalid configuration:\n${problems.map((one) => `  - ${one}`).join('\n')}`);
    this.problems = problems;
  }
}

/**
 * Variables with secrets or trusted keys, which can be read from a file, e.g. `DATABASE_URL_FILE`.
 */
export const FROM_FILES: readonly string[] = [
  'DATABASE_URL',
  'DATABASE_READ_URL',
  'REDIS_URL',
  'WITNESS_LOG_VKEYS',
];

const LONGEST_FILE = 64 * 1024;

/** A value, or the problem with the file that should contain the value. Never quotes the file. */
type Found = { value?: string } | { problem: string };

function fromFile(variable: string, file: string): Found {
  let value;
  try {
    // Only files of URLs must be private: a URL can contain a password, while vkeys are public.
    const read = variable.endsWith('_URL_FILE')
      ? readPrivateFile(file, `file of ${variable}`, true)
      : readFileSync(file, 'utf8');
    value = read.trim();
  } catch (cause) {
    if (cause instanceof OperatorError) return { problem: cause.message };
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    return { problem: `${variable} names ${file}, which cannot be read (${code})` };
  }
  if (value === '') return { problem: `${variable} names ${file}, which is empty` };
  if (value.length <= LONGEST_FILE) return { value };
  return { problem: `${variable} names ${file}, which has more than 65,536 characters` };
}

function find(env: Environment, name: string): Found {
  const text = env[name]?.trim() ?? '';
  const given = name.endsWith('_PORT') && OF_KUBERNETES.test(text) ? '' : text;
  // Docker keeps the quotes of a value in a file of `docker run --env-file`.
  if (/^(["']).*\1$/.test(given)) return { problem: `${name} is in quotes: remove the quotes` };
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

/**
 * Treats an empty variable, and an address that Kubernetes sets, as unset. Rejects variables that misspell a setting
 * of any program, and ignores all others outside `shape`.
 */
export function read<Shape extends z.ZodRawShape>(
  shape: Shape,
  env: Environment,
  settings: ReadonlySet<string>,
): Values<Shape> {
  const given: Record<string, string> = {};
  const problems = new Map(refusedVariables(env, settings).map((problem) => [problem, problem]));
  for (const name of Object.keys(shape)) {
    const found = find(env, name);
    if ('problem' in found) problems.set(name, found.problem);
    else if (found.value !== undefined) given[name] = found.value;
  }
  const result = safeParse(z.object(shape), given);
  if (result.success && problems.size === 0) {
    const values = Object.entries(result.data).map(([name, value]) => [camel(name), value]);
    return Object.fromEntries(values) as Values<Shape>;
  }
  // Reports a variable with an unusable file only once.
  const issues = (result.error?.issues ?? []).filter(({ path }) => !problems.has(String(path[0])));
  throw new ConfigError([
    ...problems.values(),
    ...issues.map((issue) => `${issue.path.join('.')} ${issue.message}`),
  ]);
}
