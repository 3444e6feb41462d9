import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
  /** Standard output, line by line, as JSON. */
  lines: Record<string, unknown>[];
}

export interface RunOptions {
  env?: Record<string, string>;
  /** What it reads; null for an input that neither comes nor ends. */
  stdin?: string | null;
  cwd?: string;
  /** Nobody reads what it prints. */
  unread?: boolean;
  /** Nor what it says on standard error. */
  unheard?: boolean;
  /** Told as soon as the program runs. */
  started?: (program: { interrupt(): void }) => void;
}

const PROGRAM = join(packageRoot, 'sdk', 'dist', 'cli', 'svc.js');

/** The command line as it is built, in a process of its own that knows nothing but `env`. */
export function svc(args: string[], options: RunOptions = {}): Promise<Ran> {
  return ran(process.execPath, [PROGRAM, ...args], options);
}

/** The same on a terminal; what it shows is in `stdout`, whichever stream it went to. */
export function svcOnTerminal(args: string[], options: RunOptions = {}): Promise<Ran> {
  const line = [process.execPath, PROGRAM, ...args].map((one) => `'${one}'`).join(' ');
  return ran('script', ['-qec', line, '/dev/null'], options);
}

function ran(program: string, args: string[], options: RunOptions): Promise<Ran> {
  const { env = {}, stdin = '', cwd, unread = false, unheard = false, started } = options;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      env: { PATH: process.env['PATH'] ?? '', ...env },
      ...(cwd !== undefined && { cwd }),
    });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => err.push(chunk));
    if (unread) child.stdout.destroy();
    if (unheard) child.stderr.destroy();
    child.on('error', reject);
    // It may end without having read a word.
    child.stdin.on('error', () => undefined);
    if (stdin !== null) child.stdin.end(stdin);
    started?.({ interrupt: () => void child.kill('SIGINT') });
    child.on('close', (code) => {
      const stdout = Buffer.concat(out).toString();
      resolve({
        code,
        stdout,
        stderr: Buffer.concat(err).toString(),
        get lines() {
          const lines = stdout.split('\n').filter((line) => line !== '');
          return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
        },
      });
    });
  });
}
