import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '#runtime/process/files';
import { startCpu, type CpuShares, type Watched } from './cpu.js';
import {
  ADMISSION_TIMEOUT_MS,
  engineHeaders,
  EXECUTE_PATH,
  type Credential,
} from './engine-api.js';
import { executeTemplates, newRun } from './items.js';
import { toolPath } from './tools.js';

export const CONNECTIONS = 64;

interface WrkOptions {
  url: string;
  /** A script in this directory and its arguments. */
  script: string;
  args: readonly string[];
  seconds: number;
  timeoutSeconds: number;
  headers?: Record<string, string>;
  /** The core to pin wrk to; unpinned by default. */
  core?: number;
  signal: AbortSignal;
}

/**
 * Runs wrk with one thread. The latencies of wrk account for requests that a slow answer delayed (coordinated
 * omission).
 *
 * @returns the JSON line that the script prints
 * @throws Error when wrk fails or prints no such line
 */
export async function runWrk<T>(options: WrkOptions): Promise<T> {
  const { url, script, args, seconds, timeoutSeconds, headers = {}, core } = options;
  const pinned = core === undefined ? [] : [toolPath('taskset'), '--cpu-list', String(core)];
  const [command = '', ...rest] = [
    ...pinned,
    toolPath('wrk'),
    ...['--threads', '1', '--connections', String(CONNECTIONS)],
    ...['--duration', `${String(seconds)}s`, '--timeout', `${String(timeoutSeconds)}s`],
    ...Object.entries(headers).flatMap(([name, value]) => ['--header', `${name}: ${value}`]),
    ...['--script', join(packageRoot, 'bench', 'harness', script), url, '--', ...args],
  ];
  const { stdout } = await promisify(execFile)(command, rest, { signal: options.signal });
  const line = stdout.split('\n').find((one) => one.startsWith('{'));
  if (line === undefined) throw new Error(`wrk printed no result: ${stdout}`);
  return JSON.parse(line) as T;
}

/** Results of wrk with `wrk-paths.lua`. */
export interface LookupLoad {
  requests: number;
  seconds: number;
  /** Microseconds from a request to the end of its answer. */
  p99: number;
  /** Answers with a status of 400 or more. */
  rejected: number;
  failed: number;
  cpuSeconds: number;
}

/** Writes a file of paths for {@link runLookups}. */
export async function writePaths(file: string, paths: Iterable<string>): Promise<string> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `${[...paths].join('\n')}\n`);
  return file;
}

/** The core of the lookup load: the server runs on another core. */
export const LOAD_CORE = 1;

/** The order in which `wrk-paths.lua` requests the paths. */
export type LookupOrder = 'random' | 'cyclic' | 'unique';

/** Sends GET requests for paths of a file, one path a line. */
export function runLookups(load: {
  url: string;
  pathsFile: string;
  seconds: number;
  seed: number;
  order?: LookupOrder | undefined;
  signal: AbortSignal;
}): Promise<LookupLoad> {
  return runWrk({
    ...load,
    script: 'wrk-paths.lua',
    args: [load.pathsFile, String(load.seed), load.order ?? 'random'],
    timeoutSeconds: 30,
    core: LOAD_CORE,
  });
}

export interface ExecuteLoadResult {
  requests: number;
  seconds: number;
  answers: Record<string, number>;
  failed: number;
  cpuSeconds: number;
  /** Milliseconds from a request to the end of its answer. */
  latencies: number[];
  cpu: CpuShares;
}

/**
 * Posts unique execute bodies over keep-alive connections, each as soon as the previous response
 * arrives. wrk's template file goes to `dir`.
 */
export async function runExecuteLoad(load: {
  url: string;
  credential: Credential;
  /** Processes whose CPU time is divided among the requests. */
  watched: Watched;
  seconds: number;
  dir: string;
  signal: AbortSignal;
}): Promise<ExecuteLoadResult> {
  const { credential, watched, dir, ...options } = load;
  const templatesFile = join(dir, 'execute.templates');
  await writeFile(templatesFile, executeTemplates(credential.tenantId).join('\n'));
  const cpuSince = startCpu(watched);
  const { quantiles, ...result } = await runWrk<
    Omit<ExecuteLoadResult, 'latencies' | 'cpu'> & { quantiles: number[] }
  >({
    ...options,
    url: load.url + EXECUTE_PATH,
    script: 'wrk-executes.lua',
    args: [templatesFile, newRun()],
    timeoutSeconds: ADMISSION_TIMEOUT_MS / 1000,
    headers: { ...engineHeaders(credential), 'Content-Type': 'application/json' },
  });
  const cpu = cpuSince(result.requests);
  return { ...result, cpu, latencies: quantiles.map((micros) => micros / 1000) };
}
