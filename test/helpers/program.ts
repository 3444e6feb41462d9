import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '#runtime/process/package-root';

/** A program itself, as an operator starts it: with an environment, and a signal to end it. */
export interface RunningProgram {
  /** Empty when it ended before it was ready, or serves nothing. */
  url: string;
  stderr: string[];
  exited: Promise<number | null>;
  /** Asks for SIGTERM. */
  signal(): void;
  /** The same, and how it ended. */
  stop(): Promise<number | null>;
}

const running = new Set<ChildProcess>();
// What a test that failed leaves behind goes with it.
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export async function startProgram(
  name: string,
  env: Record<string, string>,
  /** What it says is waited for where it cannot become ready. */
  { untilSaid }: { untilSaid?: RegExp } = {},
): Promise<RunningProgram> {
  const child = spawn(process.execPath, [join(packageRoot, 'dist', 'programs', `${name}.js`)], {
    env,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  const stderr: string[] = [];
  const said = new Promise<string>((resolve) => {
    createInterface({ input: child.stderr! }).on('line', (line) => {
      stderr.push(line);
      if (untilSaid?.test(line) === true) resolve('');
    });
  });
  const exited = new Promise<number | null>((resolve) => child.once('close', resolve));
  running.add(child);
  child.once('close', () => running.delete(child));
  const url = await Promise.race([
    new Promise<string>((resolve) => {
      child.on('message', (message) => {
        if (untilSaid === undefined) resolve((message as { url?: string }).url ?? '');
      });
    }),
    said,
    exited.then(() => ''),
  ]);
  const signal = (): void => void child.kill('SIGTERM');
  return {
    url,
    stderr,
    exited,
    signal,
    stop: () => {
      signal();
      return exited;
    },
  };
}
