import { type Argument, InvalidArgumentError, Option } from 'commander';
import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { attempt } from '../../protocol/errors.js';
import type { EngineOptions, PublicOptions } from '../index.js';
import { headerValue } from '../options.js';
import type { ExitCode, Terminal } from './terminal.js';

export interface CommonOptions {
  json?: true;
  /** Milliseconds. */
  timeout?: number;
  engineUrl?: string;
  publicUrl?: string;
  tenant?: string;
}

export interface Invocation<Options = object> extends ReturnType<typeof settingsOf> {
  argument: string;
  args: string[];
  options: Options;
  json: boolean;
  terminal: Terminal;
  signal: AbortSignal;
}

/** A subcommand, which also has the common options. */
export interface CommandSpec<Options = object> {
  name: string;
  summary: string;
  description: string;
  examples: readonly string[];
  argument?: string | Argument;
  usage?: string;
  options?: readonly (Option | readonly [flags: string, description: string])[];
  /** What `--timeout` limits, and its default. */
  timeout?: string;
  run: (invocation: Invocation<Options>) => Promise<ExitCode>;
}

export const NEEDS_ENGINE = 'Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key.';

export const commonOptions = (timeout = 'limit the whole call (default: 60)'): Option[] => [
  new Option('--json', 'print results, and errors on standard error, as JSON'),
  new Option('--timeout <SECONDS>', timeout).argParser(milliseconds),
  new Option('--engine-url <URL>', 'address of the engine').env('SVC_ENGINE_URL'),
  new Option('--public-url <URL>', 'address of the public API').env('SVC_PUBLIC_URL'),
  new Option('--tenant <ID>', 'tenant ID').env('SVC_TENANT_ID'),
];

export function milliseconds(seconds: string): number {
  if (!/^[0-9]{1,6}(\.[0-9]{1,3})?$/.test(seconds) || Number(seconds) === 0) {
    throw new InvalidArgumentError('Expected seconds, such as 90.');
  }
  return Number(seconds) * 1000;
}

export function port(text: string): number {
  if (/^[0-9]{1,5}$/.test(text) && Number(text) < 65_536) return Number(text);
  throw new InvalidArgumentError('Expected a port.');
}

/** Reads the settings on demand: a command that sends no key requires no key. */
export function settingsOf(
  { engineUrl, publicUrl, tenant, timeout }: CommonOptions,
  { redactor }: Terminal,
  signal: AbortSignal,
) {
  const call = { signal, ...(timeout !== undefined && { timeoutMs: timeout }) };
  const tenantId = (): string => required(tenant, '--tenant', 'SVC_TENANT_ID');
  return {
    tenant: tenantId,
    registry: (): PublicOptions => ({
      ...call,
      publicUrl: address(publicUrl, '--public-url', 'SVC_PUBLIC_URL'),
    }),
    engine: (): EngineOptions => {
      const url = address(engineUrl, '--engine-url', 'SVC_ENGINE_URL');
      const key = apiKey(process.env);
      redactor.protect(key);
      return { ...call, engineUrl: url, apiKey: key, tenantId: tenantId() };
    },
  };
}

function required(value: string | undefined, option: string, variable: string): string {
  if (value === undefined || value === '') {
    throw new UsageError(`set ${variable}, or give ${option}`);
  }
  return value;
}

function address(value: string | undefined, option: string, variable: string): string {
  const url = required(value, option, variable);
  if (!/^https?:\/\//i.test(url)) {
    throw new UsageError(`${variable}, or ${option}, takes an address like http://127.0.0.1:8080`);
  }
  return url;
}

/** The path of the key file, for a command that writes this path to a file. */
export function apiKeyFile(): string {
  const file = process.env['SVC_API_KEY_FILE'] ?? '';
  if (file !== '') return file;
  throw new UsageError(
    'set SVC_API_KEY_FILE: the configuration of a host must not contain the key',
  );
}

/** Reads the key. No option takes it, because every user of the machine can read command lines. */
function apiKey(env: NodeJS.ProcessEnv): string {
  const file = env['SVC_API_KEY_FILE'] ?? '';
  const key = env['SVC_API_KEY'] ?? '';
  if (key !== '' && file !== '') {
    throw new UsageError('set SVC_API_KEY or SVC_API_KEY_FILE, not both');
  }
  if (key !== '') return key;
  if (file === '') throw new UsageError('set SVC_API_KEY_FILE, or SVC_API_KEY');
  try {
    return headerValue('apiKey', readFileSync(file, 'utf8').trim());
  } catch (cause) {
    const message = `SVC_API_KEY_FILE ${file} cannot be used: ${(cause as Error).message}`;
    throw new UsageError(message, { cause });
  }
}

/** Reads the key again for every request, so that a rotated or corrected key needs no restart. */
export function withKeyFile<Options extends EngineOptions>(options: Options): Options {
  let key = options.apiKey;
  return {
    ...options,
    get apiKey() {
      // Falls back to the last key: while the file is replaced, it may be absent or empty.
      return (key = attempt(() => apiKey(process.env)) || key);
    },
  };
}

/** Whether the header `Authorization` has this token. Compares in constant time. */
export function isBearer(authorization: string | undefined, token: string): boolean {
  const [given, expected] = [authorization ?? '', `Bearer ${token}`].map((text) =>
    createHash('sha256').update(text).digest(),
  );
  return timingSafeEqual(given!, expected!);
}

export function hookToken({ SVC_HOOK_TOKEN: token = '' } = process.env): string {
  if (token === '') throw new UsageError('set SVC_HOOK_TOKEN');
  return token;
}

/** The proxied server must not get the API key, with which it could admit calls of its own. */
export function mcpEnvironment() {
  const entries = Object.entries(process.env);
  const serverEnv = Object.fromEntries(entries.filter(([name]) => !/^SVC_/i.test(name)));
  const token = (name: string) => process.env[name] || undefined;
  return {
    serverEnv,
    serverToken: token('SVC_MCP_SERVER_TOKEN'),
    listenToken: token('SVC_MCP_LISTEN_TOKEN'),
  };
}

/** The command line is wrong. The message names the correction. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
