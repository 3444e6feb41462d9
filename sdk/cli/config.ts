import { readFileSync } from 'node:fs';
import type { CallOptions, EngineOptions, PublicOptions } from '../index.js';
import type { CommonOptions } from './command.js';
import { UsageError } from './exit-code.js';

export function engineOptions(options: CommonOptions, signal: AbortSignal): EngineOptions {
  return {
    ...callOptions(options, signal),
    engineUrl: address(options.engineUrl, '--engine-url', 'SVC_ENGINE_URL'),
    apiKey: apiKey(process.env),
    tenantId: required(options.tenant, '--tenant', 'SVC_TENANT_ID'),
  };
}

export function publicOptions(options: CommonOptions, signal: AbortSignal): PublicOptions {
  return {
    ...callOptions(options, signal),
    publicUrl: address(options.publicUrl, '--public-url', 'SVC_PUBLIC_URL'),
  };
}

function callOptions({ timeout }: CommonOptions, signal: AbortSignal): CallOptions {
  return timeout === undefined ? { signal } : { signal, timeoutMs: timeout };
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

/** No option takes the key: every user of the machine can read command lines. */
function apiKey(env: NodeJS.ProcessEnv): string {
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
