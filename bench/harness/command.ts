import { mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isForOperator } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/package-root';
import type { Bound, Result } from './scenario.js';

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

/** Names that are longer than their column are cut. */
const COLUMNS = [
  { title: 'result', width: 42, right: false },
  { title: 'value', width: 20, right: true },
  { title: 'against', width: 12, right: true },
  { title: 'ratio', width: 7, right: true },
  { title: 'target', width: 24, right: false },
  { title: 'ok', width: 3, right: false },
] as const;

export function table(results: readonly Result[]): string {
  const titles = line(COLUMNS.map(({ title }) => title));
  const rule = '─'.repeat(titles.length);
  return [titles, rule, ...results.flatMap(linesOf), rule, summary(results)].join('\n');
}

function linesOf({ name, value, unit, against, ratio, target, ok, note }: Result): string[] {
  const figures = line([
    name,
    `${number(value)} ${unit}`,
    against === null ? '' : number(against.value),
    ratio === null ? '' : number(ratio),
    [bounds('ratio ', target?.ratio), bounds('', target?.value)].filter(Boolean).join(', '),
    ok === null ? '–' : ok ? 'yes' : 'NO',
  ]);
  const more = [against === null ? '' : `against ${against.what}`, note ?? ''];
  return [figures, ...more.filter(Boolean).map((text) => `    ${text}`)];
}

function line(cells: readonly string[]): string {
  return COLUMNS.map(({ width, right }, i) => {
    const cell = cells[i] ?? '';
    const cut = cell.length > width ? `${cell.slice(0, width - 1)}…` : cell;
    return right ? cut.padStart(width) : cut.padEnd(width);
  })
    .join('  ')
    .trimEnd();
}

function bounds(of: string, { atLeast, atMost }: Bound = {}): string {
  const least = atLeast === undefined ? '' : `${of}≥ ${number(atLeast)}`;
  const most = atMost === undefined ? '' : `${of}≤ ${number(atMost)}`;
  return [least, most].filter(Boolean).join(', ');
}

/** Whole from 100 on, otherwise three significant digits. */
function number(value: number): string {
  if (!Number.isFinite(value)) return 'none';
  const digits =
    Math.abs(value) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString('en-US', digits);
}

function summary(results: readonly Result[]): string {
  const count = (ok: boolean | null): string =>
    String(results.filter((one) => one.ok === ok).length);
  const missed = results.filter(({ ok }) => ok === false).map(({ name }) => name);
  const counts = `${count(true)} met, ${count(false)} missed, ${count(null)} without a target`;
  return missed.length === 0 ? counts : `${counts}\nmissed: ${missed.join('; ')}`;
}
