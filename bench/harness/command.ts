import { Console } from 'node:console';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OperatorError } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/files';
import type { Bound, Result } from './scenario.js';

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

export class UsageError extends Error {}

/**
 * Runs an entry point. The exit code is 1 when `work` fails or returns false, and 2 for wrong usage.
 *
 * @param work stops when its signal aborts; returns whether every target was met
 */
export async function runCommand(
  usage: string,
  work: (signal: AbortSignal) => Promise<boolean>,
): Promise<void> {
  const stopping = new AbortController();
  // `on`, not `once`: npm forwards Ctrl-C, and the second signal must not interrupt the cleanup.
  process.on('SIGINT', () => stopping.abort());
  process.on('SIGTERM', () => stopping.abort());
  try {
    if (!(await work(stopping.signal))) process.exitCode = 1;
  } catch (error) {
    process.exitCode = 1;
    if (stopping.signal.aborted) print('Stopped; no results were written.');
    else if (error instanceof OperatorError) print(error.message);
    else if (error instanceof UsageError || isParseError(error)) {
      process.exitCode = 2;
      process.stderr.write(`${error.message}\n${usage}\n`);
    } else throw error;
  }
}

const isParseError = (error: unknown): error is Error =>
  error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');

/** Prints a table with notes, and writes the file. Returns whether every target was met. */
export async function reportResults(file: string, results: readonly Result[]): Promise<boolean> {
  const rows = results.map((one) => [one.name, rowOf(one)] as const);
  new Console(process.stdout).table(Object.fromEntries(rows));
  for (const { name, against, note } of results) {
    const more = [against === null ? '' : `against ${against.what}`, note ?? ''].filter(Boolean);
    if (more.length > 0) print(`${name}: ${more.join('; ')}`);
  }
  const missed = results.filter(({ ok }) => ok === false).map(({ name }) => name);
  await mkdir(dirname(file), { recursive: true });
  const text = JSON.stringify({ node: process.version, results }, null, 2);
  await writeFile(`${file}.tmp`, `${text}\n`);
  await rename(`${file}.tmp`, file);
  print(`\nmissed: ${missed.join('; ') || 'none'}\n${file}`);
  return missed.length === 0;
}

/** `latest` is the last complete run, which a quick or partial run never replaces. */
export function resultsFile(kind: 'latest' | 'quick' | 'partial'): string {
  return join(packageRoot, 'bench', 'results', `${kind}.json`);
}

function rowOf({ value, unit, against, ratio, target, ok }: Result): object {
  return {
    value: rounded(value),
    unit,
    against: against === null ? null : rounded(against.value),
    ratio: ratio === null ? null : rounded(ratio),
    target: [bounds('ratio ', target?.ratio), bounds('', target?.value)].filter(Boolean).join(', '),
    ok,
  };
}

function bounds(of: string, { atLeast, atMost }: Bound = {}): string {
  const least = atLeast === undefined ? '' : `${of}≥ ${String(atLeast)}`;
  const most = atMost === undefined ? '' : `${of}≤ ${String(atMost)}`;
  return [least, most].filter(Boolean).join(', ');
}

/** Rounds to whole numbers from 100 on, otherwise to three significant digits. */
const rounded = (value: number): number =>
  Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3));
