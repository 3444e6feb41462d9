import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { OperatorError } from '#runtime/process/operator-error';

/** Programs that scenarios need, and the Debian package of each. */
const PACKAGES = {
  'redis-server': 'redis-server',
  nginx: 'nginx',
  wrk: 'wrk',
  taskset: 'util-linux',
} as const;

export type Tool = keyof typeof PACKAGES;

const PLACES = ['', '/usr/sbin/', '/usr/local/sbin/', '/opt/homebrew/bin/'];

export function findTool(tool: Tool): string | null {
  const found = PLACES.find(
    (place) => spawnSync(place + tool, ['--version'], { stdio: 'ignore' }).error === undefined,
  );
  return found === undefined ? null : found + tool;
}

/** @throws OperatorError that names the Debian package to install */
export function toolPath(tool: Tool): string {
  const path = findTool(tool);
  if (path === null) throw missing([tool]);
  return path;
}

/** @throws OperatorError that names all Debian packages to install */
export function requireTools(tools: Iterable<Tool>, find = findTool): void {
  const absent = [...new Set(tools)].filter((tool) => find(tool) === null);
  if (absent.length > 0) throw missing(absent);
}

function missing(tools: readonly Tool[]): OperatorError {
  const packages = [...new Set(tools.map((tool) => PACKAGES[tool]))].join(' ');
  return new OperatorError(
    `${tools.join(', ')}: not installed, and needed to measure. On Debian: apt-get install ${packages}`,
  );
}

/** An installed server, run as a child process of the bench. */
export interface InstalledServer {
  /** 0 when the process could not be started. */
  pid: number;
  hasExited: () => boolean;
  stderr: () => string;
  close: () => Promise<void>;
}

/**
 * Starts a server in the foreground. The caller waits until it serves.
 *
 * @throws OperatorError when it is not installed
 */
export function startInstalled(tool: Tool, args: readonly string[]): InstalledServer {
  const server = spawn(toolPath(tool), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  server.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  let hasExited = false;
  const exited = new Promise<void>((resolve) => {
    server.once('error', () => resolve()).once('exit', () => resolve());
  }).then(() => void (hasExited = true));
  return {
    pid: server.pid ?? 0,
    hasExited: () => hasExited,
    stderr: () => stderr,
    close: async () => {
      if (!hasExited) server.kill('SIGTERM');
      await exited;
    },
  };
}

/** A port that was free just now, for servers that cannot let the system choose one. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no port is free');
  return address.port;
}
