import { randomBytes } from 'node:crypto';
import { startChild, urlOf, type Child } from './child.js';
import { cpuBetween, sampleCpu, type CpuShares, type Watched } from './cpu-shares.js';
import { bodyTemplates } from './execute-bodies.js';
import { runExecuteLoad, type ExecuteLoadResult } from './execute-load.js';
import { checkLoadReceipts, type CheckedReceipts } from './load-receipts.js';
import { median } from './median.js';
import { outsideOf } from './outside.js';
import { builtFile } from './programs.js';
import type { BenchContext } from './row.js';
import type { BenchStack } from './stack.js';

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
const PATIENCE_MS = 60_000;

/**
 * Loads the engine and the echo in turn, round after round, then the engine with half of what it took,
 * and looks at random receipts of all of that from the outside.
 */
export async function runExecutes(
  stack: BenchStack,
  plan: ExecutePlan,
  context: Pick<BenchContext, 'dir' | 'redisPid' | 'signal'>,
): Promise<ExecuteFound> {
  const echo = startChild({ file: builtFile('bench/express-echo') });
  try {
    const echoUrl = await urlOf(echo, 'the echo');
    return await loadInTurn(stack, { pid: echo.pid, url: echoUrl }, plan, context);
  } finally {
    await echo.stop();
  }
}

async function loadInTurn(
  stack: BenchStack,
  echo: { pid: number; url: string },
  { connections, rounds, seconds, warmUpSeconds, halfSeconds, receipts }: ExecutePlan,
  { dir, redisPid, signal }: Pick<BenchContext, 'dir' | 'redisPid' | 'signal'>,
): Promise<ExecuteFound> {
  const { apiKey, tenantId } = stack.registry;
  const templates = bodyTemplates({ tenantId });
  const served = watchedOf(stack, redisPid);
  const engine = { url: stack.engineUrl, watched: served };
  const peer = { url: echo.url, watched: { echo: [echo.pid] } };
  const load = async (
    { url, watched }: typeof engine | typeof peer,
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
  await load(peer, { seconds: Math.min(warmUpSeconds, 2) });
  const found = { engine: [] as ExecuteRound[], echo: [] as ExecuteRound[] };
  let run = newRun();
  for (let i = 0; i < rounds; i += 1) {
    found.echo.push(await load(peer, { seconds }));
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
    { most: receipts, patienceMs: PATIENCE_MS },
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
