import { isForOperator } from '#runtime/process/operator-error';
import { resultsFile, writeResults, type ResultsKind } from './results.js';
import type { Row } from './row.js';
import { say } from './say.js';
import { table } from './table.js';

/** What a command of the bench came to, and where that is kept. */
export interface Found {
  rows: Row[];
  results: ResultsKind;
}

/**
 * Runs a command of the bench: prints its rows and keeps them. The exit code is 1 when one of them
 * missed what it had to reach or the work failed, and 2 when it was called wrongly.
 *
 * @param work ends by its signal; null when what it was told makes no sense
 */
export async function runCommand(
  usage: string,
  work: (signal: AbortSignal) => Promise<Found | null>,
): Promise<void> {
  const stopping = new AbortController();
  // Ctrl-C comes twice where npm hands it on: the second must not end what closes things.
  process.on('SIGINT', () => stopping.abort());
  process.on('SIGTERM', () => stopping.abort());
  try {
    const found = await work(stopping.signal);
    if (found !== null) return await tell(found);
    process.exitCode = 2;
    say(usage);
  } catch (error) {
    process.exitCode = 1;
    if (stopping.signal.aborted) say('Stopped; no results were written.');
    else if (isForOperator(error)) say(error.message);
    else if ((error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')) {
      process.exitCode = 2;
      say(`${(error as Error).message}\n${usage}`);
    } else throw error;
  }
}

async function tell({ rows, results }: Found): Promise<void> {
  say(`\n${table(rows)}`);
  const file = resultsFile(results);
  await writeResults(file, rows);
  say(file);
  if (rows.some(({ ok }) => ok === false)) process.exitCode = 1;
}
