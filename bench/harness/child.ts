import { fork } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/files';
import type { Cleanup } from './cleanup.js';

/** Child processes run built modules, never sources. */
export const builtFile = (path: string): string => join(packageRoot, 'dist', `${path}.js`);

interface ChildOptions {
  module: string;
  env?: Record<string, string>;
  task?: object;
  onMessage?: (message: unknown) => void;
}

export type Child = ReturnType<typeof startChild>;

/** Starts a process of a scenario, which is never restarted: a run with a crash is not a measurement. */
export function startChild(options: ChildOptions) {
  const { module, env = {}, task, onMessage } = options;
  const child = fork(builtFile(module), [], {
    env,
    // As in deploy/systemd and the Dockerfile.
    execArgv: ['--max-semi-space-size=16'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  let failure = '';
  const exited = new Promise<number | null>((resolve) => child.once('close', resolve));
  const finished = exited.then((code) => {
    if (code !== 0) throw new Error(`${module} exited with ${String(code)}: ${failure}`);
  });
  const ready = new Promise<string | undefined>((resolve, reject) => {
    child.on('message', (message: { ready?: true; url?: string; failed?: string }) => {
      if (message.ready === true) resolve(message.url);
      else if (message.failed !== undefined) failure = message.failed;
      else onMessage?.(message);
    });
    void exited.then((code) =>
      reject(new Error(`${module} exited with ${String(code)}: ${failure}`)),
    );
  });
  // Prevents unhandled rejections, because not every caller awaits these promises.
  ready.catch(() => undefined);
  finished.catch(() => undefined);
  if (task !== undefined) child.send(task);
  return {
    pid: child.pid ?? 0,
    /** Resolves with the URL, if any, once the child serves; rejects when it exits earlier. */
    ready,
    /** Resolves at exit with code 0; rejects with the child's own error otherwise. */
    finished,
    /** Sends SIGTERM and waits for the exit. */
    stop: () => {
      child.kill('SIGTERM');
      return exited;
    },
  };
}

/** @throws Error when the child exits before it serves, or reports no URL */
export async function urlOf(child: Child): Promise<string> {
  const url = await child.ready;
  if (url === undefined) throw new Error('a child process became ready without a URL');
  return url;
}

/** Starts a child that serves; the cleanup stops it. */
export async function startServer(
  options: ChildOptions,
  cleanup: Cleanup,
): Promise<{ url: string; pid: number }> {
  const child = startChild(options);
  cleanup.push(() => child.stop());
  return { url: await urlOf(child), pid: child.pid };
}

export function report(message: object): void {
  if (process.connected) process.send?.(message);
}

/**
 * Main function of a child's module: runs `work` with the parent's task. The signal aborts on
 * SIGTERM and when the parent exits. An error is reported to the parent, and the exit code is 1.
 */
export function runTask<T>(work: (task: T, stopping: AbortSignal) => Promise<void>): void {
  const stopping = new AbortController();
  process.once('SIGTERM', () => stopping.abort());
  process.once('message', (task) => {
    process.once('disconnect', () => stopping.abort());
    void work(task as T, stopping.signal)
      .catch((error: unknown) => {
        process.exitCode = 1;
        report({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
      })
      .finally(() => {
        if (process.connected) process.disconnect();
      });
  });
}

export const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
