import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cpuSecondsOf } from '../harness/cpu.js';
import { proofPath } from '../harness/public-api.js';
import { interleaved } from '../harness/scenario.js';
import { sumOf } from '../harness/statistics.js';
import { runLookups, writePaths, type LookupLoad, type LookupOrder } from '../harness/wrk.js';
import type { LookupSample } from './samples.js';

export interface Target {
  name: string;
  url: string;
  /** Processes of the server and, if it is a cache, of the server behind it. */
  pids: readonly number[];
  pathsFile: string;
  order?: LookupOrder;
  /** Throws if the last load got unintended responses, such as cache misses instead of hits. */
  verify?: () => Promise<void>;
  /** Ids with their exact answers. All responses must be 404s if the sample has the status 404, otherwise none may be. */
  sample?: LookupSample;
}

export type Round = Awaited<ReturnType<typeof loadOnce>>;

export interface LoadPlan {
  rounds: number;
  seconds: number;
  signal: AbortSignal;
}

const WARM_UP_S = 1;

/**
 * Loads the targets one at a time.
 *
 * @returns rounds by target
 * @throws Error when a request fails or has an unexpected status
 */
export async function loadInterleaved(
  targets: readonly Target[],
  plan: LoadPlan,
): Promise<Round[][]> {
  for (const target of targets) await loadOnce(target, { ...plan, seconds: WARM_UP_S }, 0);
  return interleaved(
    plan.rounds,
    targets.map((target) => async (round) => {
      const loaded = await loadOnce(target, plan, round + 1);
      await sleep(50);
      return loaded;
    }),
  );
}

async function loadOnce(
  { name, url, pids, pathsFile, order, verify, sample }: Target,
  { seconds, signal }: LoadPlan,
  seed: number,
) {
  const before = sumOf(pids, cpuSecondsOf);
  const result = await runLookups({ url, pathsFile, seconds, seed, order, signal });
  const used = sumOf(pids, cpuSecondsOf) - before;
  requireAnswered(name, result, sample?.status === 404);
  await verify?.();
  return {
    rate: result.requests / result.seconds,
    /** CPU time of the servers per request. */
    cpuMicros: (used * 1e6) / result.requests,
    /** Utilization of the server's core and of the load's core, from 0 to 1. */
    serverBusy: used / result.seconds,
    loadBusy: result.cpuSeconds / result.seconds,
    /** In microseconds. */
    p99: result.p99,
  };
}

/** Looks these proofs up in random order. Returns the number of requests, which all succeeded. */
export async function lookUpProofs(
  url: string,
  ids: readonly string[],
  { dir, seconds, signal }: { dir: string; seconds: number; signal: AbortSignal },
): Promise<number> {
  const pathsFile = await writePaths(join(dir, 'proofs.paths'), ids.map(proofPath));
  const result = await runLookups({ url, pathsFile, seconds, seed: 1, signal });
  requireAnswered('public API', result, false);
  return result.requests;
}

/** @throws Error when a request got no response, or an unexpected status */
export function requireAnswered(
  name: string,
  { requests, rejected, failed }: Pick<LookupLoad, 'requests' | 'rejected' | 'failed'>,
  isAbsent: boolean,
): void {
  const expected = isAbsent ? requests : 0;
  if (requests > 0 && failed === 0 && rejected === expected) return;
  throw new Error(
    `${name}: ${String(failed)} of ${String(requests)} requests failed, and ${String(rejected)} were rejected instead of ${String(expected)}`,
  );
}
