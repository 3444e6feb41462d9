import { randomBytes } from 'node:crypto';
import { startChild, urlOf, type Child } from '../service/child.js';
import { closing } from '../closing.js';
import { cpuBetween, sampleCpu, type CpuShares, type Watched } from '../figures/cpu-shares.js';
import { bodyTemplates } from './execute-bodies.js';
import { runExecuteLoad, type ExecuteLoadResult } from './execute-load.js';
import { checkLoadReceipts, type CheckedReceipts } from './load-receipts.js';
import { median } from '../figures/median.js';
import { outsideOf } from '../receipts/outside.js';
import { builtFile } from '../service/programs.js';
import { startPipeline } from '../pipeline/pipeline.js';
import type { BenchContext } from '../row.js';
import type { BenchStack } from '../service/stack.js';

/** One load of one server. */
export interface ExecuteRound extends ExecuteLoadResult {
  cpu: CpuShares;
}

/** Everything that the execute rows are made of. */
export interface ExecuteFound {
  connections: number;
  engine: ExecuteRound[];
  /** The Express echo, round by round beside `engine`. */
  echo: ExecuteRound[];
  /** The bare pipeline, likewise. */
  pipeline: ExecuteRound[];
  /** The engine again, with half as many requests a second. */
  half: ExecuteRound;
  receipts: CheckedReceipts;
}

export interface ExecutePlan {
  connections: number;
  rounds: number;
  seconds: number;
  warmUpSeconds: number;
  halfSeconds: number;
  receipts: number;
}

/** A receipt that was given may take so long to be public once everything else rests. */
const TIMEOUT_MS = 60_000;

/**
 * Loads the engine, the echo and the bare pipeline in turn, round after round, then the engine with half of what it took,
 * and looks at random receipts of all of that from the outside.
 */
export async function runExecutes(
  stack: BenchStack,
  plan: ExecutePlan,
  context: Pick<BenchContext, 'dir' | 'redisPid' | 'signal'>,
): Promise<ExecuteFound> {
  return closing(async (open) => {
    const echo = startChild({ file: builtFile('bench/singles/express-echo') });
    open.push(() => echo.stop());
    const echoUrl = await urlOf(echo, 'the echo');
    const pipeline = await startPipeline(stack.registry, context.dir);
    open.push(() => pipeline.close());
    const peers = {
      echo: { url: echoUrl, watched: { echo: [echo.pid] } },
      pipeline: { url: pipeline.engineUrl, watched: pipeline.watched },
    };
    return Promise.race([loadInTurn(stack, peers, plan, context), pipeline.failed]);
  });
}

/** A server with the processes that it takes. */
interface Peer {
  url: string;
  watched: Watched;
}

async function loadInTurn(
  stack: BenchStack,
  peers: Readonly<Record<'echo' | 'pipeline', Peer>>,
  { connections, rounds, seconds, warmUpSeconds, halfSeconds, receipts }: ExecutePlan,
  { dir, redisPid, signal }: Pick<BenchContext, 'dir' | 'redisPid' | 'signal'>,
): Promise<ExecuteFound> {
  const { apiKey, tenantId } = stack.registry;
  const templates = bodyTemplates({ tenantId });
  const served = watchedOf(stack, redisPid);
  const engine = { url: stack.engineUrl, watched: served };
  const load = async (
    { url, watched }: Peer,
    { seconds, pauseMs = 0, run = newRun() }: { seconds: number; pauseMs?: number; run?: string },
  ): Promise<ExecuteRound> => {
    const before = sampleCpu(watched);
    const result = await runExecuteLoad(
      { url, apiKey, tenantId, templates, run, connections, seconds, pauseMs, dir, keepOneIn: 50 },
      signal,
    );
    return { ...result, cpu: cpuBetween(before, sampleCpu(watched), result.requests) };
  };
  await load(engine, { seconds: warmUpSeconds });
  await load(peers.echo, { seconds: Math.min(warmUpSeconds, 2) });
  await load(peers.pipeline, { seconds: Math.min(warmUpSeconds, 4) });
  const found: Record<'engine' | 'echo' | 'pipeline', ExecuteRound[]> = {
    engine: [],
    echo: [],
    pipeline: [],
  };
  let run = newRun();
  for (let i = 0; i < rounds; i += 1) {
    found.echo.push(await load(peers.echo, { seconds }));
    found.pipeline.push(await load(peers.pipeline, { seconds }));
    run = newRun();
    found.engine.push(await load(engine, { seconds, run }));
  }
  const last = found.engine.at(-1);
  if (last === undefined) throw new Error('there are no rounds');
  const pauseMs = pauseFor(found.engine, connections);
  const half = await load(engine, { seconds: halfSeconds, pauseMs });
  const sent = last.requests + connections;
  const checked = await checkLoadReceipts(
    outsideOf(stack),
    { templates, run, sent, keptFile: last.keptFile },
    { most: receipts, patienceMs: TIMEOUT_MS },
  );
  return { ...found, connections, half, receipts: checked };
}

/** Of the saturated latency, what is left of it at half the load, as far as it can be told before. */
const LEFT_AT_HALF = 0.4;

/** With such a pause between an answer and the next request, about half as many are sent. */
function pauseFor(engine: readonly ExecuteRound[], connections: number): number {
  const rate = median(engine.map(({ requests, seconds }) => requests / seconds));
  return ((2 - LEFT_AT_HALF) * connections * 1000) / rate;
}

const newRun = (): string => randomBytes(6).toString('hex');

function watchedOf(
  { engine, workers, verifier, publisher, facade, registry }: BenchStack,
  redisPid: number,
): Watched {
  const pids = (children: readonly Child[]): number[] => children.map(({ pid }) => pid);
  return {
    engine: pids([engine]),
    workers: pids(workers),
    verifier: pids([verifier]),
    publisher: pids([publisher]),
    facade: pids([facade]),
    Postgres: [registry.postgresPid],
    Redis: [redisPid],
  };
}
