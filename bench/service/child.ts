import { fork, type ChildProcess } from 'node:child_process';

export interface ChildOptions {
  /** The module to run. */
  file: string;
  args?: string[];
  env?: Record<string, string>;
  /** Where a CPU profile goes when it ends; none when not given. */
  profileDir?: string | undefined;
  onMessage?: (message: unknown) => void;
}

/** A process of a measurement: never restarted, since what has to be restarted is not measured. */
export interface Child {
  pid: number;
  /** What it says when it serves: its URL, if it has one. Rejects when it ends before. */
  ready: Promise<string | undefined>;
  /** Its exit code; null when a signal ended it. */
  exited: Promise<number | null>;
  send(message: object): void;
  /** Asks it to drain and waits for it. */
  stop(): Promise<number | null>;
}

export function startChild(options: ChildOptions): Child {
  const { file, args = [], env = {}, profileDir, onMessage } = options;
  const child: ChildProcess = fork(file, args, {
    env,
    execArgv: profileDir === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profileDir}`],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const exited = new Promise<number | null>((resolve) => child.once('close', resolve));
  const ready = new Promise<string | undefined>((resolve, reject) => {
    child.on('message', (message) => {
      const said = message as { ready?: true; url?: string };
      if (said.ready === true) resolve(said.url);
      else onMessage?.(message);
    });
    void exited.then((code) => reject(new Error(`${file} ended with ${String(code)}`)));
  });
  // Not everybody waits for it.
  ready.catch(() => undefined);
  return {
    pid: child.pid ?? 0,
    ready,
    exited,
    send: (message) => void child.send(message),
    stop: () => {
      child.kill('SIGTERM');
      return exited;
    },
  };
}

/**
 * Where a child serves.
 *
 * @throws Error when it ends before it does, or serves nowhere
 */
export async function urlOf(child: Child, what: string): Promise<string> {
  const url = await child.ready;
  if (url === undefined) throw new Error(`${what} does not say where it serves`);
  return url;
}
