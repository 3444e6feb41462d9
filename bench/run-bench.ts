import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { cpus, loadavg, totalmem } from 'node:os';
import { OperatorError } from '#runtime/process/operator-error';
import { openBenchDirectory } from './directory.js';
import { startBenchRedis } from './service/redis.js';
import { failedRow, type Measurement, type Row } from './row.js';
import { say } from './say.js';
import { requireTools } from './tools.js';

export interface BenchOptions {
  quick: boolean;
  /** With CPU profiles; they are kept only where `dir` is given. */
  profile: boolean;
  /** Names of measurements; all of them when not given. */
  only: readonly string[] | undefined;
  /** Kept afterwards; when not given, one that is made and removed. */
  dir: string | undefined;
  signal: AbortSignal;
}

/**
 * Runs the measurements one after the other. One that fails is a row that says so.
 *
 * @throws OperatorError before anything is started: a name that is none, a tool that is missing, a
 *   directory that is no disk
 * @throws the signal's reason when the bench is interrupted
 */
export async function runBench(
  all: readonly Measurement[],
  { quick, profile, only, dir, signal }: BenchOptions,
): Promise<Row[]> {
  const chosen = chooseMeasurements(all, only);
  requireTools(['redis-server', ...chosen.flatMap(({ needs = [] }) => needs)]);
  const directory = await openBenchDirectory(dir);
  try {
    const redis = await startBenchRedis(join(directory.path, 'redis'));
    try {
      say(machine(redis.version, directory.path));
      const rows: Row[] = [];
      for (const [i, measurement] of chosen.entries()) {
        const { name } = measurement;
        const began = performance.now();
        say(`[${String(i + 1)}/${String(chosen.length)}] ${name}`);
        const own = join(directory.path, name);
        const sharedDir = join(directory.path, 'registry');
        for (const one of [own, sharedDir]) await mkdir(one, { recursive: true, mode: 0o755 });
        const { url: redisUrl, pid: redisPid } = redis;
        await redis.empty();
        const found = await measurement
          .measure({ quick, profile, dir: own, sharedDir, redisUrl, redisPid, signal })
          .catch((error: unknown) => {
            signal.throwIfAborted();
            say(error instanceof Error ? (error.stack ?? error.message) : String(error));
            return [failedRow(name, error)];
          });
        signal.throwIfAborted();
        rows.push(...(found.length > 0 ? found : [failedRow(name, 'it measured nothing')]));
        await directory.discard(own);
        say(`      ${((performance.now() - began) / 1000).toFixed(0)} s`);
      }
      return rows;
    } finally {
      await redis.close();
    }
  } finally {
    await directory.close();
  }
}

function chooseMeasurements(
  all: readonly Measurement[],
  only: readonly string[] | undefined,
): readonly Measurement[] {
  const unknown = only?.filter((name) => !all.some((one) => one.name === name)) ?? [];
  if (unknown.length > 0) {
    const names = all.map(({ name }) => name).join(', ');
    throw new OperatorError(`no measurement is called ${unknown.join(', ')}; there are ${names}`);
  }
  return only === undefined ? all : all.filter(({ name }) => only.includes(name));
}

/** On what, and how busy it was with other things. */
function machine(redisVersion: string, dir: string): string {
  const cores = cpus();
  const memory = `${(totalmem() / 2 ** 30).toFixed(0)} GiB`;
  const load = loadavg()[0]?.toFixed(1) ?? 'unknown';
  return `${String(cores.length)} × ${cores[0]?.model ?? 'unknown'}, ${memory}, load ${load}; Node ${process.version}, Redis ${redisVersion}; ${dir}`;
}
