import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { utf8 } from '#protocol/bytes';
import { packageRoot } from '#runtime/process/package-root';

type Vector = Record<string, unknown>;

export function vectors<T = Vector>(name: string): T {
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

/** Documents that the offline verifier accepts. */
export const admission = (): Required<Pick<OfflineVector, 'export'>> & OfflineVector => {
  const found = vectors<OfflineVector[]>('valid/offline').find(({ name }) => name === 'admission');
  if (found?.export === undefined) throw new Error('there is no such vector');
  return { ...found, export: found.export };
};
