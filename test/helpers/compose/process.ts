import { type ChildProcess, spawn } from 'node:child_process';

/** A process of a service: what it wrote, and how it ended. */
export interface Running {
  service: string;
  pid: number;
  child: ChildProcess;
  output: string[];
  ended: Promise<number | null>;
}

export interface Launch {
  service: string;
  argv: string[];
  env: Record<string, string>;
  cwd: string;
  uid: number;
  gid: number;
  /** Capabilities that it keeps; it has no other, whoever it is. */
  keeps: string[];
}

export const isRoot = process.getuid?.() === 0;

/**
 * The user, no capability but those kept, and none to be had by running something else: what
 * `user`, `cap_drop`, `cap_add` and `no-new-privileges` come to. Only root can arrange it.
 */
function confined({ argv, uid, gid, keeps }: Launch): string[] {
  if (!isRoot) return argv;
  const caps = ['-all', ...keeps.map((name) => `+${name.toLowerCase()}`)].join(',');
  return [
    'setpriv',
    `--reuid=${uid}`,
    `--regid=${gid}`,
    '--clear-groups',
    '--no-new-privs',
    `--bounding-set=${caps}`,
    '--inh-caps=-all',
    ...argv,
  ];
}

export function launch(what: Launch): Running {
  const [file = '', ...rest] = confined(what);
  const child = spawn(file, rest, {
    cwd: what.cwd,
    env: what.env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => output.push(text));
  }
  const ended = new Promise<number | null>((resolve) => {
    child.once('error', (error) => {
      output.push(String(error));
      resolve(-1);
    });
    child.once('close', (code) => resolve(code));
  });
  return { service: what.service, pid: child.pid ?? 0, child, output, ended };
}

/** Runs to its end; throws with what it wrote when that is not 0. */
export async function runToEnd(what: Launch): Promise<string> {
  const running = launch(what);
  const code = await running.ended;
  const output = running.output.join('');
  if (code !== 0) throw new Error(`${what.service} ended with ${String(code)}:\n${output}`);
  return output;
}
