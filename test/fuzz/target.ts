import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiProblem } from '#api/http/responses';
import { utf8 } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { ConfigError } from '#runtime/config';
import { packageRoot } from '#runtime/process/files';

/** A parser of untrusted input, with properties that must hold for any input. */
export interface Target {
  name: string;
  /** Valid inputs and near misses, which are mutated. */
  seeds: readonly Uint8Array[];
  /**
   * Parses an input, and checks the properties that its result must have.
   *
   * @returns `accepted`, or the code of the declared error
   * @throws any other error, which is a finding
   */
  run(input: Uint8Array): string;
}

export function must(holds: boolean, violation: string): void {
  if (!holds) throw new Error(`broken property: ${violation}`);
}

export const ACCEPTED = 'accepted';

/** The code of a declared error; rethrows every other error. */
function codeOf(error: unknown): string {
  if (error instanceof ProtocolError || error instanceof ApiProblem) return String(error.code);
  if (error instanceof ConfigError) return 'config';
  throw error;
}

/** Parses an input and checks the result; errors of `check` are findings. */
export function parsing<T>(
  parse: (input: Uint8Array) => T,
  check?: (value: T, input: Uint8Array) => void,
) {
  return (input: Uint8Array): string => {
    let value: T;
    try {
      value = parse(input);
    } catch (error) {
      return codeOf(error);
    }
    check?.(value, input);
    return ACCEPTED;
  };
}

export function vectors<T>(name: string): T {
  const file = join(packageRoot, 'protocol', 'vectors', `${name}.json`);
  return JSON.parse(readFileSync(file, 'utf8')) as T;
}

export const texts = (...all: readonly string[]): Uint8Array[] => all.map(utf8);

export const jsons = (...all: readonly unknown[]): Uint8Array[] =>
  all.map((one) => utf8(JSON.stringify(one)));

export interface OfflineVector {
  name: string;
  trust: { aep_keys: string[]; log_vkey?: string; log_origin?: string };
  export?: string;
  tlog_proof?: string;
  entry?: string;
  expected: { authentic?: boolean; included?: boolean };
}

/** The vector `admission`: an export that the offline verifier accepts. */
export const admission = (): Required<Pick<OfflineVector, 'export'>> & OfflineVector => {
  const found = vectors<OfflineVector[]>('valid/offline').find(({ name }) => name === 'admission');
  if (found?.export === undefined) throw new Error('the vector "admission" is missing');
  return { ...found, export: found.export };
};
