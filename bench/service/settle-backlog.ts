import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { startChild } from './child.js';
import { builtFile } from './programs.js';
import type { BenchRegistry } from './registry.js';
import type { Go, HeldLock, TimedWorkerTask } from './timed-worker-task.js';

export interface Settled {
  proofs: number;
  /** Proofs a second, from the first tenth to the last: what starting up takes is no part of it. */
  rate: number;
  /** From the word to begin to the last proof. */
  seconds: number;
  /** How long each transaction of any worker held the append lock, in milliseconds. */
  heldMs: readonly number[];
}

/** Where the rate is taken: shares of all that there is to settle. */
const FROM = 0.1;
const TO = 0.9;
const LOOK_EVERY_MS = 10;

/**
 * Has worker processes settle what is waiting. They are ready before any of them begins.
 *
 * @param begin puts the backlog there, and returns how many proofs it is
 */
export async function settleBacklog(
  registry: BenchRegistry,
  owner: Pool,
  workers: number,
  options: { redisUrl: string; begin: () => Promise<number>; signal: AbortSignal },
): Promise<Settled> {
  const { redisUrl, begin, signal } = options;
  const heldMs: number[] = [];
  const onMessage = (message: unknown): void => {
    heldMs.push(...(message as HeldLock).heldMs);
  };
  const task: TimedWorkerTask = {
    databaseUrl: registry.roleUrl('svc_worker'),
    redisUrl,
    aepKeyFile: registry.keyFiles.aep,
  };
  const children = Array.from({ length: workers }, () =>
    startChild({ file: builtFile('bench/service/timed-worker'), onMessage }),
  );
  const ended = Promise.race(children.map((child) => child.exited)).then((code) => {
    throw new Error(`a worker ended with ${String(code)}`);
  });
  ended.catch(() => undefined);
  try {
    for (const child of children) child.send(task);
    await Promise.all(children.map((child) => child.ready));
    const before = await treeSize(owner);
    const proofs = await begin();
    const go: Go = { go: true };
    const began = performance.now();
    for (const child of children) child.send(go);
    const reached = async (share: number): Promise<number> => {
      while ((await treeSize(owner)) < before + proofs * share) {
        signal.throwIfAborted();
        await Promise.race([sleep(LOOK_EVERY_MS), ended]);
      }
      return performance.now();
    };
    const from = { at: await reached(FROM), size: await treeSize(owner) };
    const to = { at: await reached(TO), size: await treeSize(owner) };
    const seconds = ((await reached(1)) - began) / 1000;
    for (const child of children) await child.stop();
    if (heldMs.length === 0) throw new Error('nobody was seen to hold the append lock');
    const rate = ((to.size - from.size) / (to.at - from.at)) * 1000;
    return { proofs, rate, seconds, heldMs };
  } finally {
    for (const child of children) await child.stop();
  }
}
