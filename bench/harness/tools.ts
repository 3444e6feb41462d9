import { spawn, spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '#runtime/process/operator-error';

export type Tool = 'redis-server' | 'nginx' | 'wrk' | 'taskset';

const PLACES = ['', '/usr/sbin/', '/usr/local/sbin/', '/opt/homebrew/bin/'];

export function findTool(tool: Tool): string | null {
  const found = PLACES.find(
    (place) => spawnSync(place + tool, ['--version'], { stdio: 'ignore' }).error === undefined,
  );
  return found === undefined ? null : found + tool;
}

/** @throws OperatorError that names the Debian package to install */
export function toolPath(tool: Tool): string {
  requireTools([tool]);
  return findTool(tool) ?? tool;
}

/** @throws OperatorError that names all Debian packages to install */
export function requireTools(tools: Iterable<Tool>): void {
  const absent = [...new Set(tools)].filter((tool) => findTool(tool) === null);
  if (absent.length === 0) return;
  const packages = absent.map((tool) => (tool === 'taskset' ? 'util-linux' : tool)).join(' ');
  throw new OperatorError(
    `${absent.join(', ')}: not installed, and needed to measure. On Debian: apt-get install ${packages}`,
  );
}

const START_MS = 10_000;

/**
 * Starts a server in the foreground and waits until it serves.
 *
 * @throws OperatorError when it is not installed
 */
export async function startInstalled(
  tool: Tool,
  args: readonly string[],
  isServing: () => Promise<boolean>,
) {
  const server = spawn(toolPath(tool), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  server.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  let hasExited = false;
  const exited = new Promise<void>((resolve) => {
    server.once('error', () => resolve()).once('exit', () => resolve());
  }).then(() => void (hasExited = true));
  const close = async (): Promise<void> => {
    if (!hasExited) server.kill('SIGTERM');
    await exited;
  };
  const deadline = performance.now() + START_MS;
  while (!(await isServing())) {
    if (hasExited || performance.now() > deadline) {
      await close();
      throw new Error(`${tool} does not serve: ${stderr}`);
    }
    await sleep(10);
  }
  return { pid: server.pid ?? 0, close };
}
