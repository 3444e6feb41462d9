import { join } from 'node:path';
import { openSharedRegistry, sizesOf } from '../harness/fill.js';
import { randomProofIds } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { median, pairedRatio, spread, whole } from '../harness/statistics.js';
import { CONNECTIONS, loadInterleaved, type Round } from '../lookup/interleaved-load.js';
import { startNginx, keepPublished, pin, SERVER_CORE, startPublicApi } from '../lookup/servers.js';
import { takeSamples, withEqualAnswers } from '../lookup/samples.js';

/** Public lookups, interleaved with nginx that serves the same bodies as files. */
export const lookup: Scenario = { name: 'lookup', needs: ['wrk', 'nginx', 'taskset'], run };

/** Lookups of each kind; nginx keeps as many files open. */
const SAMPLE = { full: 10_000, quick: 1_000 };

async function run(context: RunContext): Promise<Result[]> {
  const { quick, dir, signal, cleanup } = context;
  const { recentLookupLimit } = sizesOf(context);
  const registry = await openSharedRegistry(context);
  await keepPublished(registry, recentLookupLimit, cleanup);
  const publicApi = await startPublicApi(registry, recentLookupLimit, cleanup);
  const sampling = { dir, recentLookupLimit, count: quick ? SAMPLE.quick : SAMPLE.full };
  const samples = await takeSamples(randomProofIds(registry), publicApi.url, sampling);
  const { recent, older, absent, staticRoot } = samples;
  const nginx = await startNginx(join(dir, 'nginx'), staticRoot, recent.bodies.size);
  cleanup.push(() => nginx.close());
  await pin(nginx.pid, SERVER_CORE);

  const compared = {
    hit: { server: publicApi, sample: recent },
    nginx: { server: nginx, sample: recent },
    miss: { server: publicApi, sample: absent },
    older: { server: publicApi, sample: older },
  };
  const targets = Object.entries(compared).map(([name, { server, sample }]) => ({
    name,
    url: server.url,
    pid: server.pid,
    pathsFile: sample.pathsFile,
    isAbsent: sample.status === 404,
  }));
  const plan = { rounds: quick ? 1 : 6, seconds: quick ? 1 : 4, signal };
  const rounds = await withEqualAnswers(compared, () => loadInterleaved(targets, plan));
  return lookupResults(
    Object.fromEntries(rounds) as unknown as LookupRounds,
    `${whole(samples.proofs)} proofs, ${whole(recentLookupLimit)} recent, ${String(recent.bodies.size)} ids, ${String(CONNECTIONS)} connections`,
  );
}

export type LookupRounds = Record<'hit' | 'nginx' | 'miss' | 'older', readonly Round[]>;

/**
 * Compares requests per CPU second of the server. On an otherwise idle core this equals requests
 * per second; under other load it still measures only the server.
 */
export function lookupResults(rounds: LookupRounds, sizes: string): Result[] {
  const { hit, nginx, miss, older } = rounds;
  return [
    compared('public lookup, hit', hit, 'nginx, the same bodies as files', nginx, {
      atLeast: 0.95,
      note: `nginx: ${observed(nginx)}; ${sizes}`,
    }),
    compared('public lookup, miss (404)', miss, 'the hit', hit, { atLeast: 1 }),
    compared('public lookup of an old proof', older, 'the hit', hit, {
      atLeast: 0.5,
      note: 'older than the recent lookups, over the whole history',
    }),
  ];
}

function compared(
  name: string,
  own: readonly Round[],
  what: string,
  others: readonly Round[],
  { atLeast, note }: { atLeast: number; note?: string },
): Result {
  const perCpuSecond = (some: readonly Round[]): number => 1e6 / median(microsOf(some));
  return resultOf({
    name,
    value: perCpuSecond(own),
    unit: 'requests/CPU s',
    against: { what, value: perCpuSecond(others) },
    // Throughput is the inverse of the CPU time.
    ratio: 1 / pairedRatio(microsOf(own), microsOf(others)),
    target: { ratio: { atLeast } },
    note: [observed(own), ...(note === undefined ? [] : [note])].join('; '),
  });
}

const microsOf = (rounds: readonly Round[]): number[] => rounds.map(({ cpuMicros }) => cpuMicros);

function observed(rounds: readonly Round[]): string {
  const of = (figure: keyof Round): number => median(rounds.map((round) => round[figure]));
  return (
    `${of('cpuMicros').toFixed(1)} µs of CPU (${spread(microsOf(rounds), 1)}), ${of('rate').toFixed(0)}/s, ` +
    `p99 ${(of('p99') / 1000).toFixed(1)} ms, used ${(100 * of('serverBusy')).toFixed(0)} % of its core, ` +
    `wrk ${(100 * of('loadBusy')).toFixed(0)} % of its own`
  );
}
