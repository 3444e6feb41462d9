import { spawnSync } from 'node:child_process';
import { OperatorError } from '#runtime/process/operator-error';

/** Programs that peers and pinning need, and the Debian package of each. */
const PACKAGES = {
  'redis-server': 'redis-server',
  nginx: 'nginx',
  wrk: 'wrk',
  taskset: 'util-linux',
} as const;

export type Tool = keyof typeof PACKAGES;

/** Where servers live that are not on the path of everybody. */
const PLACES = ['', '/usr/sbin/', '/usr/local/sbin/', '/opt/homebrew/bin/'];

/** How to call a tool; null when it is not installed. */
export function findTool(tool: Tool): string | null {
  const found = PLACES.find(
    (place) => spawnSync(place + tool, ['--version'], { stdio: 'ignore' }).error === undefined,
  );
  return found === undefined ? null : found + tool;
}

/**
 * How to call a tool.
 *
 * @throws OperatorError that names the Debian package to install
 */
export function toolPath(tool: Tool): string {
  const path = findTool(tool);
  if (path === null) throw missing([tool]);
  return path;
}

/**
 * All that is missing at once, before anything is started.
 *
 * @throws OperatorError that names the Debian packages to install
 */
export function requireTools(tools: Iterable<Tool>, find = findTool): void {
  const absent = [...new Set(tools)].filter((tool) => find(tool) === null);
  if (absent.length > 0) throw missing(absent);
}

function missing(tools: readonly Tool[]): OperatorError {
  const packages = [...new Set(tools.map((tool) => PACKAGES[tool]))].join(' ');
  return new OperatorError(
    `${tools.join(', ')}: not found here, and measured against. On Debian: apt-get install ${packages}`,
  );
}
