import { mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isForOperator } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/package-root';
import type { Result } from './scenario.js';
import { table } from './table.js';

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Functions that stop what was started, in the order of the starts. */
export type Cleanup = (() => Promise<unknown>)[];

/** Runs `work`, then its cleanup functions, last first, whether `work` succeeded or failed. */
export async function withCleanup<T>(work: (cleanup: Cleanup) => Promise<T>): Promise<T> {
  const cleanup: Cleanup = [];
  try {
    return await work(cleanup);
  } finally {
    for (const stop of cleanup.reverse()) await stop();
  }
}

export class UsageError extends Error {}

/**
 * Runs an entry point. The exit code is 1 when `work` fails or returns false, and 2 for wrong usage.
 *
 * @param work aborts by its signal; returns whether every target was met
 */
export async function runCommand(
  usage: string,
  work: (signal: AbortSignal) => Promise<boolean>,
): Promise<void> {
  const stopping = new AbortController();
  // npm passes Ctrl-C on, so it arrives twice; the second must not kill the cleanup.
  process.on('SIGINT', () => stopping.abort());
  process.on('SIGTERM', () => stopping.abort());
  try {
    if (!(await work(stopping.signal))) process.exitCode = 1;
  } catch (error) {
    process.exitCode = 1;
    if (stopping.signal.aborted) print('Stopped; no results were written.');
    else if (isForOperator(error)) print(error.message);
    else if (error instanceof UsageError || isParseError(error)) {
      process.exitCode = 2;
      print(`${error.message}\n${usage}`);
    } else throw error;
  }
}

const isParseError = (error: unknown): error is Error =>
  error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');

/** Prints the table and writes the file. Returns whether every target was met. */
export async function reportResults(file: string, results: readonly Result[]): Promise<boolean> {
  print(`\n${table(results)}`);
  await writeResults(file, results);
  print(file);
  return results.every(({ ok }) => ok !== false);
}

/** `latest` is a complete run; a quick or partial run never replaces it. */
export function resultsFile(kind: 'latest' | 'quick' | 'partial'): string {
  return join(packageRoot, 'bench', 'results', `${kind}.json`);
}

/** Replaces the file atomically. */
async function writeResults(file: string, results: readonly Result[]): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(`${file}.tmp`, `${JSON.stringify(results, null, 2)}\n`);
  await rename(`${file}.tmp`, file);
}
