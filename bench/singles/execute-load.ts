import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '#runtime/process/package-root';
import { engineHeaders } from '../service/headers.js';
import type { Weighted } from '../figures/percentile.js';
import { toolPath } from '../tools.js';

export interface ExecuteLoad {
  /** Of the server, without a path. */
  url: string;
  apiKey: string;
  tenantId: string;
  /** Of `bodyTemplates`; a word that no other run has. */
  templates: readonly string[];
  run: string;
  connections: number;
  seconds: number;
  /** Mean milliseconds that a connection waits before its next request; 0: as fast as it is answered. */
  pauseMs: number;
  /** For the files that wrk reads and writes. */
  dir: string;
  /** One answer in so many is kept. */
  keepOneIn: number;
}

/** What wrk saw. */
export interface ExecuteLoadResult {
  requests: number;
  seconds: number;
  /** How many answers of each status. */
  answers: Record<string, number>;
  /** Requests that were not answered at all. */
  failed: number;
  /** CPU time of wrk. */
  cpuSeconds: number;
  /** Milliseconds from a request to the end of its answer. */
  latencies: Weighted[];
  /** The file of the answers that were kept, one a line. */
  keptFile: string;
}

export const EXECUTE_PATH = '/v1/intents/execute';
/** Longer than an engine waits for an admission: that shows as its 202, and not as nothing. */
const TIMEOUT_S = 15;

/**
 * Posts execute bodies over keep-alive connections, each with the next one as soon as it is answered.
 * wrk's latencies allow for requests that a slow answer kept from being sent (coordinated omission).
 *
 * @throws Error when wrk cannot run or says nothing
 */
export async function runExecuteLoad(
  load: ExecuteLoad,
  signal: AbortSignal,
): Promise<ExecuteLoadResult> {
  const { url, run, connections, seconds, pauseMs, dir, keepOneIn } = load;
  const templatesFile = join(dir, `${run}.templates`);
  const keptFile = join(dir, `${run}.answers`);
  await writeFile(templatesFile, load.templates.map((line) => `${line}\n`).join(''));
  const headers = {
    ...engineHeaders(load.apiKey, load.tenantId),
    'Content-Type': 'application/json',
  };
  const { stdout } = await promisify(execFile)(
    toolPath('wrk'),
    [
      ...['--threads', '1', '--connections', String(connections)],
      ...['--duration', `${String(seconds)}s`, '--timeout', `${String(TIMEOUT_S)}s`],
      ...Object.entries(headers).flatMap(([name, value]) => ['--header', `${name}: ${value}`]),
      ...['--script', join(packageRoot, 'bench', 'singles', 'wrk-executes.lua')],
      ...[url + EXECUTE_PATH, '--'],
      ...[templatesFile, run, String(Math.round(pauseMs)), keptFile, String(keepOneIn)],
    ],
    { signal },
  );
  const said = stdout.split('\n').find((line) => line.startsWith('{'));
  if (said === undefined) throw new Error(`wrk did not say what came of it: ${stdout}`);
  const { quantiles, ...result } = JSON.parse(said) as Omit<
    ExecuteLoadResult,
    'latencies' | 'keptFile'
  > & { quantiles: number[] };
  const each = result.requests / quantiles.length;
  const latencies = quantiles.map((micros): Weighted => [micros / 1000, each]);
  return { ...result, latencies, keptFile };
}
