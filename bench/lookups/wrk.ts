import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '#runtime/process/package-root';
import { LOAD_CORE } from './pinning.js';
import { toolPath } from '../tools.js';

export interface Load {
  /** Of the server, without a path. */
  url: string;
  /** A file of paths, one a line: each request is for any one of them. */
  pathsFile: string;
  connections: number;
  seconds: number;
  seed: number;
}

/** What wrk saw. */
export interface LoadResult {
  requests: number;
  /** With their headers. */
  bytes: number;
  seconds: number;
  /** Microseconds from a request to the end of its answer. */
  p50: number;
  p99: number;
  /** Answers with a status of 400 or more. */
  refused: number;
  /** Requests without an answer. */
  failed: number;
  /** CPU time of wrk. */
  cpuSeconds: number;
}

/**
 * Asks as fast as one server answers, from one thread that is pinned to a core of its own.
 *
 * @throws Error when wrk cannot run or says nothing
 */
export async function runWrk(load: Load, signal: AbortSignal): Promise<LoadResult> {
  const { url, pathsFile, connections, seconds, seed } = load;
  const { stdout } = await promisify(execFile)(
    toolPath('taskset'),
    [
      ...['--cpu-list', String(LOAD_CORE), toolPath('wrk')],
      ...['--threads', '1', '--connections', String(connections)],
      // A busy machine makes answers late, which is no failure.
      ...['--duration', `${String(seconds)}s`, '--timeout', '30s'],
      ...['--script', join(packageRoot, 'bench', 'lookups', 'wrk-paths.lua')],
      ...[url, '--', pathsFile, String(seed)],
    ],
    { signal },
  );
  const said = stdout.split('\n').find((line) => line.startsWith('{'));
  if (said === undefined) throw new Error(`wrk did not say what came of it: ${stdout}`);
  return JSON.parse(said) as LoadResult;
}
