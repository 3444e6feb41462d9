import { mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';
import type { Row } from './row.js';

/** Of which run: the whole one, the quick one, one of some measurements only, or that of scale. */
export type ResultsKind = 'latest' | 'quick' | 'partial' | 'scale';

/** Only a whole run is the latest: neither a quick nor a partial one takes its place. */
export function resultsFile(kind: ResultsKind, root = packageRoot): string {
  return join(root, 'bench', 'results', `${kind}.json`);
}

/** Writes the rows as a plain list, whole or not at all. */
export async function writeResults(file: string, rows: readonly Row[]): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(`${file}.tmp`, `${JSON.stringify(rows, null, 2)}\n`);
  await rename(`${file}.tmp`, file);
}
