import { InvalidArgumentError, Option, type Command } from 'commander';
import type { EngineOptions, PublicOptions } from '../index.js';
import type { ExitCode } from './exit-code.js';
import type { Terminal } from './terminal.js';

/** Options of every command. */
export interface CommonOptions {
  json?: true;
  /** Milliseconds. */
  timeout?: number;
  engineUrl?: string;
  publicUrl?: string;
  tenant?: string;
}

export interface Invocation<Options = object> {
  argument: string;
  options: Options;
  json: boolean;
  /** Reads the settings on demand: a command that sends no key requires none. */
  engine: () => EngineOptions;
  registry: () => PublicOptions;
  terminal: Terminal;
}

export interface CommandTexts {
  name: string;
  summary: string;
  description: string;
  examples: readonly string[];
}

/** Adds a subcommand to the program. The caller adds its argument and its own options. */
export type AddCommand = <Options>(
  texts: CommandTexts,
  run: (invocation: Invocation<Options>) => Promise<ExitCode>,
) => Command;

export const commonOptions = (): Option[] => [
  new Option('--json', 'print results, and errors on standard error, as JSON'),
  new Option('--timeout <SECONDS>', 'limit the whole call (default: 60)').argParser(milliseconds),
  new Option('--engine-url <URL>', 'address of the engine').env('SVC_ENGINE_URL'),
  new Option('--public-url <URL>', 'address of the public API').env('SVC_PUBLIC_URL'),
  new Option('--tenant <ID>', 'tenant ID').env('SVC_TENANT_ID'),
];

function milliseconds(seconds: string): number {
  if (!/^[0-9]{1,6}(\.[0-9]{1,3})?$/.test(seconds) || Number(seconds) === 0) {
    throw new InvalidArgumentError('Expected seconds, as in --timeout 90.');
  }
  return Number(seconds) * 1000;
}
