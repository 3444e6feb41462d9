import { setTimeout as sleep } from 'node:timers/promises';
import { cpuSecondsBetween, cpuTimesOf } from '../figures/cpu-time.js';
import { runWrk, type LoadResult } from './wrk.js';

/** A server with what it is asked for. */
export interface Target {
  name: string;
  url: string;
  pid: number;
  /** Paths, one a line. */
  pathsFile: string;
  /** Whether all answers are refusals (404) or none is. */
  isRefused: boolean;
}

/** One round of one target. */
export interface Round {
  /** Requests answered in a second. */
  rate: number;
  /** Of the server's core, for one request: microseconds of the server's process. */
  cpuMicros: number;
  /** How much of its core the server had, and how much of its own the load; 0 to 1. */
  serverBusy: number;
  loadBusy: number;
  p50: number;
  p99: number;
}

export interface LoadPlan {
  rounds: number;
  /** Of one target in one round. */
  seconds: number;
  connections: number;
  signal: AbortSignal;
}

/** Long enough that every path is compiled and every cache is as it will stay. */
const WARM_UP_S = 1;

/**
 * Puts load on the targets in turn, one at a time, round after round: what happens to the machine
 * meanwhile happens to all of them.
 *
 * @throws Error when a request is not answered, or not with the status that was expected
 */
export async function loadInTurn(
  targets: readonly Target[],
  plan: LoadPlan,
): Promise<Map<string, Round[]>> {
  const rounds = new Map<string, Round[]>(targets.map(({ name }) => [name, []]));
  for (const target of targets) await loadOnce(target, { ...plan, seconds: WARM_UP_S }, 0);
  for (let i = 1; i <= plan.rounds; i += 1) {
    for (const target of targets) {
      rounds.get(target.name)?.push(await loadOnce(target, plan, i));
      await sleep(50);
    }
  }
  return rounds;
}

async function loadOnce(
  { name, url, pid, pathsFile, isRefused }: Target,
  { seconds, connections, signal }: LoadPlan,
  seed: number,
): Promise<Round> {
  const before = cpuTimesOf(pid);
  const result = await runWrk({ url, pathsFile, connections, seconds, seed }, signal);
  const used = cpuSecondsBetween(before, cpuTimesOf(pid));
  requireAnswered(name, result, isRefused);
  return {
    rate: result.requests / result.seconds,
    cpuMicros: (used * 1e6) / result.requests,
    serverBusy: used / result.seconds,
    loadBusy: result.cpuSeconds / result.seconds,
    p50: result.p50,
    p99: result.p99,
  };
}

/** @throws Error when a request got no answer, or one of another status than all are to have */
export function requireAnswered(
  name: string,
  { requests, refused, failed }: LoadResult,
  all: boolean,
): void {
  const expected = all ? requests : 0;
  if (requests > 0 && failed === 0 && refused === expected) return;
  throw new Error(
    `${name}: of ${String(requests)} requests ${String(failed)} failed and ${String(refused)} were refused, where ${String(expected)} were to be`,
  );
}
