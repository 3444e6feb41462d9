import { join } from 'node:path';
import { startServer } from '../harness/child.js';
import { openSharedRegistry, sizesOf } from '../harness/fill.js';
import { PROOF_PATH } from '../harness/public-api.js';
import type { PeerTask } from '../harness/peer-process.js';
import { databaseSize, randomProofIds } from '../harness/registry.js';
import type { Cleanup } from '../harness/cleanup.js';
import {
  resultOf,
  type Bound,
  type Result,
  type Scenario,
  type RunContext,
} from '../harness/scenario.js';
import { median, pairedRatio, spread, whole } from '../harness/statistics.js';
import { CONNECTIONS, runLookups, writePaths } from '../harness/wrk.js';
import { loadInterleaved, type Round, type Target } from '../lookup/interleaved-load.js';
import { startNginx, keepPublished, pin, SERVER_CORE, startPublicApi } from '../lookup/servers.js';
import { startShippedCache } from '../lookup/shipped-cache.js';
import { takeSamples, withEqualAnswers, type LookupSample } from '../lookup/samples.js';

/**
 * Public lookups, in rounds that alternate with those of nginx that serves the same bodies as files, of a Node server
 * with a constant response, and of the shipped cache.
 */
export const lookup: Scenario = { name: 'lookup', needs: ['wrk', 'nginx', 'taskset'], run };

const EVIDENCE_PATH = '/api/public/evidence/';

/** Lookups per kind. nginx's `open_file_cache` has room for the files of all recent proofs. */
const SAMPLE = { full: 10_000, quick: 1_000 };

async function run(context: RunContext): Promise<Result[]> {
  const { quick, dir, signal, cleanup } = context;
  const { recentLookupLimit } = sizesOf(context);
  const registry = await openSharedRegistry(context);
  await keepPublished(registry, cleanup);
  const publicApi = await startPublicApi(registry, cleanup);
  const sampling = { dir, recentLookupLimit, count: quick ? SAMPLE.quick : SAMPLE.full };
  const samples = await takeSamples(randomProofIds(registry), publicApi.url, sampling);
  const { recent, older, absent, staticRoot } = samples;
  const nginx = await startNginx(join(dir, 'nginx'), staticRoot, recent.bodies.size);
  cleanup.push(() => nginx.close());
  await pin(nginx.pid, SERVER_CORE);

  const compared = (name: string, { url, pid }: Server, sample: LookupSample): Target => {
    return { name, url, pids: [pid], pathsFile: sample.pathsFile, sample };
  };
  const evidence = await evidenceTarget(publicApi, recent, dir);
  const targets = [
    compared('hit', publicApi, recent),
    compared('nginx', nginx, recent),
    compared('miss', publicApi, absent),
    compared('older', publicApi, older),
    await constantTarget(recent, cleanup),
    evidence.target,
    ...(await cacheTargets(publicApi, recent, context)),
  ];
  const plan = { rounds: quick ? 1 : 6, seconds: quick ? 1 : 4, signal };
  const rounds = await withEqualAnswers(targets, () => loadInterleaved(targets, plan));
  const { proofs } = await databaseSize(registry.owner);
  return lookupResults(
    Object.fromEntries(
      targets.map(({ name }, at) => [name, rounds[at]]),
    ) as unknown as LookupRounds,
    `${whole(proofs)} proofs, ${whole(recentLookupLimit)} recent, ${String(recent.bodies.size)} ids, ${String(CONNECTIONS)} connections`,
    evidence.bytes,
  );
}

interface Server {
  url: string;
  pid: number;
}

/** A server of Node that answers every request with the first body of the sample. */
async function constantTarget(
  { bodies, pathsFile }: LookupSample,
  cleanup: Cleanup,
): Promise<Target> {
  const [body] = bodies.values();
  const task: PeerTask = { constant: String(body) };
  const { url, pid } = await startServer({ module: 'bench/harness/peer-process', task }, cleanup);
  await pin(pid, SERVER_CORE);
  return { name: 'constant', url, pids: [pid], pathsFile };
}

/** Lookups of the evidence of the proofs in `bodies`. Evidence changes with each snapshot, so its bytes are not compared. */
async function evidenceTarget(
  { url, pid }: Server,
  { bodies }: LookupSample,
  dir: string,
): Promise<{ target: Target; bytes: number }> {
  const paths = [...bodies.keys()].map((path) => EVIDENCE_PATH + path.slice(PROOF_PATH.length));
  const pathsFile = await writePaths(join(dir, 'evidence.paths'), paths);
  const response = await fetch(url + paths[0]!);
  const bytes = (await response.arrayBuffer()).byteLength;
  return { target: { name: 'evidence', url, pids: [pid], pathsFile }, bytes };
}

/** Few paths, so that each response is looked up thousands of times in the second until it expires. */
const HOT_PATHS = 100;
/** More paths than are looked up in the two seconds until nginx considers every response expired. */
const EXPIRED_PATHS = 40_000;
/** Enough to request every expired path twice: the second request stores the response. */
const STORE_SECONDS = 15;

/** The shipped cache and the public API server behind it, on the same core. */
async function cacheTargets(
  publicApi: Server,
  sample: LookupSample,
  { dir, signal, cleanup }: RunContext,
): Promise<Target[]> {
  const cache = await startShippedCache(join(dir, 'cache'), publicApi.url);
  cleanup.push(() => cache.close());
  await pin(cache.pid, SERVER_CORE);
  const { url } = cache;
  const paths = [...sample.bodies.keys()];
  const hot = await writePaths(join(dir, 'hot.paths'), paths.slice(0, HOT_PATHS));
  // A query string changes the cache key, but the public API ignores query strings.
  const keys = Array.from(
    { length: EXPIRED_PATHS },
    (_, n) => `${paths[n % paths.length] ?? ''}?${String(n)}`,
  );
  const expired = await writePaths(join(dir, 'expired.paths'), keys);
  const storing = { url, pathsFile: expired, seconds: STORE_SECONDS, seed: 0, signal };
  await runLookups({ ...storing, order: 'cyclic' });
  const shared = { url, pids: [cache.pid, publicApi.pid] };
  await cache.clearLog();
  return [
    {
      ...shared,
      name: 'cold',
      pathsFile: sample.pathsFile,
      sample,
      order: 'unique',
      verify: () => cache.requireStatus('MISS'),
    },
    { ...shared, name: 'hot', pathsFile: hot, verify: () => cache.requireStatus('HIT') },
    {
      ...shared,
      name: 'revalidated',
      pathsFile: expired,
      order: 'cyclic',
      // A new snapshot changes every entity tag, so nginx reports EXPIRED instead of REVALIDATED.
      verify: () => cache.requireStatus('EXPIRED', 'REVALIDATED'),
    },
  ];
}

export type LookupRounds = Record<
  'hit' | 'nginx' | 'miss' | 'older' | 'constant' | 'evidence' | 'hot' | 'revalidated' | 'cold',
  readonly Round[]
>;

/**
 * Compares requests per CPU second of the server. On an otherwise idle core this equals requests
 * per second; under other load it still measures only the server.
 */
function lookupResults(rounds: LookupRounds, sizes: string, evidenceBytes: number): Result[] {
  const { hit, nginx, miss, older, constant, evidence, hot, revalidated, cold } = rounds;
  return [
    compared('public lookup, hit', hit, 'nginx that serves the same bodies as files', nginx, {
      atLeast: 0.95,
      note: `nginx: ${observed(nginx)}; ${sizes}`,
    }),
    compared('public lookup, miss (404)', miss, 'the hit', hit, { atLeast: 1 }),
    compared('public lookup of an old proof', older, 'the hit', hit, {
      atLeast: 0.5,
      note: 'older than the recent lookups, over the whole history',
    }),
    compared("constant response of Node's HTTP server", constant, 'the hit', hit, { atMost: 1.11 }),
    compared('public lookup, evidence', evidence, 'the hit', hit, {
      rate: { atLeast: 5_000 },
    }),
    resultOf({
      name: 'bytes of evidence',
      value: evidenceBytes,
      unit: 'bytes',
      target: { value: { atMost: 4_000 } },
      note: `of a proof; ${sizes}`,
    }),
    compared('shipped cache, hot', hot, 'nginx that serves the same bodies as files', nginx),
    compared('shipped cache, revalidated', revalidated, 'the hit', hit, {
      note: 'the cached responses have expired, and the public API sends each in full, because the snapshot is new; CPU of cache and public API',
    }),
    compared('shipped cache, cold', cold, 'the hit', hit, {
      note: 'never requested before: the public API answers; CPU of cache and public API',
    }),
  ];
}

function compared(
  name: string,
  own: readonly Round[],
  what: string,
  others: readonly Round[],
  { note, rate, ...ratio }: Bound & { rate?: Bound; note?: string } = {},
): Result {
  const perCpuSecond = (some: readonly Round[]): number => 1e6 / median(microsOf(some));
  return resultOf({
    name,
    value: perCpuSecond(own),
    unit: 'requests/CPU s',
    against: { what, value: perCpuSecond(others) },
    // Throughput is the inverse of the CPU time.
    ratio: 1 / pairedRatio(microsOf(own), microsOf(others)),
    target: { ratio, ...(rate !== undefined && { value: rate }) },
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
