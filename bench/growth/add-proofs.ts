import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { verifiedPrefix } from '#sql/log/verdicts';
import type { Child } from '../service/child.js';
import { fillAll } from '../filling/filling.js';
import { Progress } from '../filling/progress.js';
import type { BenchRegistry } from '../service/registry.js';

/** Admits proofs and waits until the verifier, which has to run beside, is done with them. */
export async function addProofs(
  registry: BenchRegistry,
  owner: Pool,
  count: number,
  options: { children: Child[]; signal: AbortSignal },
): Promise<void> {
  const { children, signal } = options;
  const plan = { count, processes: 1, group: 256, lanes: 3, profileDir: undefined };
  const progress = new Progress(registry, owner, count);
  await fillAll(registry, owner, plan, children, progress, signal);
  const size = await treeSize(owner);
  while (((await verifiedPrefix(owner))?.treeSize ?? 0) < size) {
    signal.throwIfAborted();
    await sleep(20);
  }
}
