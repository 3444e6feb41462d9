import { join } from 'node:path';
import { withCleanup } from '../harness/command.js';
import { fillRegistry, sizesOf } from '../harness/fill.js';
import { openBenchRegistry, randomProofIds } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { median, pairedRatio, spread, whole } from '../harness/statistics.js';
import { CONNECTIONS, loadInterleaved, type Round } from '../lookup/interleaved-load.js';
import { startNginx } from '../lookup/nginx.js';
import { takeSamples, withEqualAnswers } from '../lookup/samples.js';
import {
  keepPublished,
  pin,
  SERVER_CORE,
  startConstant,
  startPublicApi,
} from '../lookup/servers.js';

/** Public lookups, interleaved with nginx that serves the same bodies as files. */
export const lookup: Scenario = { name: 'lookup', needs: ['wrk', 'nginx', 'taskset'], run };

/** Lookups of each kind; nginx keeps as many files open. */
const SAMPLE = { full: 10_000, quick: 1_000 };

async function run(context: RunContext): Promise<Result[]> {
  const { quick, dir, sharedDir, signal } = context;
  const sizes = sizesOf(context);
  const { recentLookupLimit } = sizes;
  return withCleanup(async (cleanup) => {
    const registry = await openBenchRegistry(sharedDir);
    cleanup.push(() => registry.close());
    await fillRegistry(registry, { ...sizes, signal });
    await keepPublished(registry, recentLookupLimit, cleanup);
    const publicApi = await startPublicApi(registry, recentLookupLimit, cleanup);
    const count = quick ? SAMPLE.quick : SAMPLE.full;
    const samples = await takeSamples(randomProofIds(registry), publicApi.url, {
      dir,
      recentLookupLimit,
      count,
    });
    const { recent, older, absent, staticRoot } = samples;
    const nginx = await startNginx(join(dir, 'nginx'), staticRoot, recent.bodies.size);
    cleanup.push(() => nginx.close());
    await pin(nginx.pid, SERVER_CORE);
    const [path = ''] = recent.bodies.keys();
    const constant = await startConstant(publicApi.url + path, cleanup);

    const checked = {
      hit: { server: publicApi, sample: recent },
      nginx: { server: nginx, sample: recent },
      miss: { server: publicApi, sample: absent },
      older: { server: publicApi, sample: older },
    };
    const targets = Object.entries({
      ...checked,
      // One answer to everything: there is nothing to compare.
      constant: { server: constant, sample: recent },
    }).map(([name, { server, sample }]) => ({
      name,
      url: server.url,
      pid: server.pid,
      pathsFile: sample.pathsFile,
      isAbsent: sample.status === 404,
    }));
    const plan = { rounds: quick ? 1 : 6, seconds: quick ? 1 : 4, signal };
    const rounds = await withEqualAnswers(checked, () => loadInterleaved(targets, plan));
    return lookupResults(
      Object.fromEntries(rounds) as unknown as LookupRounds,
      `${whole(samples.proofs)} proofs, ${whole(recentLookupLimit)} recent, ${String(recent.bodies.size)} ids, ${String(CONNECTIONS)} connections`,
    );
  });
}

export type LookupRounds = Record<
  'hit' | 'nginx' | 'miss' | 'older' | 'constant',
  readonly Round[]
>;

/**
 * Compares requests per CPU second of the server. With a core of its own that equals requests per
 * second; with other load it still measures the server, and not how the core was shared.
 */
export function lookupResults(rounds: LookupRounds, sizes: string): Result[] {
  const { hit, nginx, miss, older, constant } = rounds;
  return [
    compared('public lookup, hit', hit, 'nginx, the same bodies as files', nginx, {
      atLeast: 0.95,
      note: `nginx: ${observed(nginx)}; ${ratioOf(hit, constant).toFixed(2)} of Node's own HTTP server; ${sizes}`,
    }),
    compared('public lookup, miss (404)', miss, 'the hit', hit, { atLeast: 1 }),
    compared('public lookup of an old proof', older, 'the hit', hit, {
      atLeast: 0.5,
      note: 'older than the recent lookups, over the whole history',
    }),
    compared("Node's own HTTP, one constant answer", constant, 'nginx', nginx, {
      note: 'no lookup and no file: the upper bound of a server on Node',
    }),
  ];
}

function compared(
  name: string,
  own: readonly Round[],
  what: string,
  others: readonly Round[],
  { atLeast, note }: { atLeast?: number; note?: string },
): Result {
  const perCpuSecond = (some: readonly Round[]): number =>
    1e6 / median(some.map(({ cpuMicros }) => cpuMicros));
  return resultOf({
    name,
    value: perCpuSecond(own),
    unit: 'requests/CPU s',
    against: { what, value: perCpuSecond(others) },
    ratio: ratioOf(own, others),
    ...(atLeast !== undefined && { target: { ratio: { atLeast } } }),
    note: [observed(own), ...(note === undefined ? [] : [note])].join('; '),
  });
}

/** Throughput per CPU second of `own` by that of `others`. */
const ratioOf = (own: readonly Round[], others: readonly Round[]): number =>
  1 /
  pairedRatio(
    own.map(({ cpuMicros }) => cpuMicros),
    others.map(({ cpuMicros }) => cpuMicros),
  );

function observed(rounds: readonly Round[]): string {
  const of = (figure: keyof Round): number => median(rounds.map((round) => round[figure]));
  const micros = rounds.map(({ cpuMicros }) => cpuMicros);
  return (
    `${of('cpuMicros').toFixed(1)} µs of CPU (${spread(micros, 1)}), ${of('rate').toFixed(0)}/s, ` +
    `p99 ${(of('p99') / 1000).toFixed(1)} ms, used ${(100 * of('serverBusy')).toFixed(0)} % of its core, ` +
    `wrk ${(100 * of('loadBusy')).toFixed(0)} % of its own`
  );
}
