import type { ParseArgsConfig } from 'node:util';
import type { EngineOptions, PublicOptions } from '../index.js';
import type { ExitCode } from './exit-code.js';
import type { Terminal } from './terminal.js';

export interface Option {
  type: 'string' | 'boolean';
  short?: string;
  /** What stands for the value in help. */
  value?: string;
  help: string;
}

/** The options of a command, as typed; a string for `string`, true for `boolean`. */
export type Values = Readonly<Record<string, string | boolean | undefined>>;

export interface Invocation {
  args: readonly string[];
  values: Values;
  json: boolean;
  /** Made when they are asked for: a command that needs no key asks for none. */
  engine: () => EngineOptions;
  registry: () => PublicOptions;
  terminal: Terminal;
}

/** One thing that the program can do. */
export interface Command {
  name: string;
  summary: string;
  /** What comes after the name. */
  usage: string;
  /** How many arguments it takes. */
  takes: { least: number; most: number };
  description: string;
  options: Readonly<Record<string, Option>>;
  examples: readonly string[];
  run(invocation: Invocation): Promise<ExitCode>;
}

export const COMMON_OPTIONS = {
  json: { type: 'boolean', help: 'JSON on standard output, and errors as JSON on standard error' },
  timeout: { type: 'string', value: 'SECONDS', help: 'for the whole call; 60' },
  'engine-url': { type: 'string', value: 'URL', help: 'instead of SVC_ENGINE_URL' },
  'public-url': { type: 'string', value: 'URL', help: 'instead of SVC_PUBLIC_URL' },
  tenant: { type: 'string', value: 'ID', help: 'instead of SVC_TENANT_ID' },
  help: { type: 'boolean', short: 'h', help: 'this' },
} as const satisfies Record<string, Option>;

/** As `parseArgs` of Node takes them. */
export function parsed(options: Command['options']): NonNullable<ParseArgsConfig['options']> {
  return Object.fromEntries(
    Object.entries(options).map(([name, { type, short }]) => [
      name,
      { type, ...(short !== undefined && { short }) },
    ]),
  );
}

/** The value of a `string` option. */
export function text(values: Values, name: string): string | undefined {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
}
