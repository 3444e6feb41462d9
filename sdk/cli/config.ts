import { readFileSync } from 'node:fs';
import type { CallOptions, EngineOptions, PublicOptions } from '../index.js';
import { text, type Values } from './command.js';
import { UsageError } from './usage-error.js';

/** The one place that reads the environment. */
export function environment(): NodeJS.ProcessEnv {
  return process.env;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Where the engine is and who calls, from options and, where they are absent, the environment. */
export function engineOptions(
  env: Environment,
  values: Values,
  signal: AbortSignal,
): EngineOptions {
  return {
    ...callOptions(values, signal),
    engineUrl: setting(env, values, 'engine-url', 'SVC_ENGINE_URL'),
    apiKey: apiKey(env),
    tenantId: setting(env, values, 'tenant', 'SVC_TENANT_ID'),
  };
}

export function publicOptions(
  env: Environment,
  values: Values,
  signal: AbortSignal,
): PublicOptions {
  return {
    ...callOptions(values, signal),
    publicUrl: setting(env, values, 'public-url', 'SVC_PUBLIC_URL'),
  };
}

function callOptions(values: Values, signal: AbortSignal): CallOptions {
  const seconds = text(values, 'timeout');
  if (seconds === undefined) return { signal };
  if (!/^[0-9]{1,6}(\.[0-9]{1,3})?$/.test(seconds) || Number(seconds) === 0) {
    throw new UsageError('--timeout takes seconds, as in --timeout 90');
  }
  return { signal, timeoutMs: Number(seconds) * 1000 };
}

function setting(env: Environment, values: Values, option: string, variable: string): string {
  const found = text(values, option) ?? env[variable];
  if (found === undefined || found === '') {
    throw new UsageError(`set ${variable}, or give --${option}`);
  }
  const isAddress = option.endsWith('-url');
  if (isAddress && !/^https?:\/\//i.test(found)) {
    throw new UsageError(
      `${variable}, or --${option}, takes an address like http://127.0.0.1:8080`,
    );
  }
  return found;
}

/** There is no option for it: what is typed on a command line, everybody on the machine can read. */
function apiKey(env: Environment): string {
  const file = env['SVC_API_KEY_FILE'] ?? '';
  const key = env['SVC_API_KEY'] ?? '';
  if (key !== '' && file !== '') {
    throw new UsageError('set SVC_API_KEY or SVC_API_KEY_FILE, not both');
  }
  if (key !== '') return key;
  if (file === '') throw new UsageError('set SVC_API_KEY_FILE, or SVC_API_KEY');
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (cause) {
    throw new UsageError(`SVC_API_KEY_FILE ${file} cannot be read`, { cause });
  }
}
