import { setTimeout as sleep } from 'node:timers/promises';
import { startCpu, type Watched } from './cpu.js';
import { executeAtRate, type Credential } from './engine-api.js';
import type { UnexpectedAnswers } from './scenario.js';

export type PacedRun = Awaited<ReturnType<typeof runPaced>>;

/**
 * Sends single executions at a fixed rate, whether or not earlier requests are answered. Measures the
 * requests that are due after the warm-up, and the CPU time per answer during that time. The CPU time
 * includes the time that idle programs use.
 */
export async function runPaced(
  engineUrl: string,
  options: {
    watched: Watched;
    credentials: readonly Credential[];
    perSecond: number;
    warmUpSeconds: number;
    seconds: number;
    unexpected: UnexpectedAnswers;
    signal: AbortSignal;
  },
) {
  const { watched, perSecond, warmUpSeconds, seconds, signal } = options;
  const count = perSecond * (warmUpSeconds + seconds);
  /** Milliseconds from the time when each request was due to its receipt. */
  const ms: number[] = [];
  let answers = 0;
  const from = performance.now() + warmUpSeconds * 1000;
  const sending = executeAtRate(engineUrl, { ...options, count }, (answered) => {
    answers += 1;
    if (answered.due >= from) ms.push(answered.ms);
  });
  // The load is awaited at the end; until then a rejection must not end the process.
  sending.catch(() => undefined);
  await sleep(warmUpSeconds * 1000, undefined, { signal });
  const answersBefore = answers;
  const cpuSince = startCpu(watched);
  await sleep(seconds * 1000, undefined, { signal });
  // CPU per answer, not per request due: an overloaded service answers later.
  const cpu = cpuSince(answers - answersBefore);
  await sending;
  return { ms, cpu };
}
