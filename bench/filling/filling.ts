import { setTimeout as sleep } from 'node:timers/promises';
import { parseApiKey } from '#protocol/api-key';
import type { Pool } from '#sql/db/transaction';
import { authenticate } from '#sql/tenants/authenticate';
import { startChild, type Child } from '../service/child.js';
import type { FillContext } from './fill.js';
import type { FillerMessage, FillerTask } from './filler-task.js';
import { builtFile } from '../service/programs.js';
import type { Progress } from './progress.js';
import type { BenchRegistry } from '../service/registry.js';
import { resourcesOf } from '../figures/resources.js';
import { say } from '../say.js';
import type { Stage } from './stage.js';

export interface FillPlan {
  count: number;
  processes: number;
  group: number;
  lanes: number;
  profileDir: string | undefined;
}

/** Fills with several processes at once, and first settles what an earlier run left open. */
export async function fillAll(
  registry: BenchRegistry,
  owner: Pool,
  plan: FillPlan,
  children: Child[],
  progress: Progress,
  signal: AbortSignal,
): Promise<Stage> {
  const began = performance.now();
  const tenant = await whoAsks(registry, owner);
  const total = { leaves: 0, cpuSeconds: 0, acceptMs: 0, settleMs: 0 };
  let settled: () => void = () => undefined;
  const leftoversSettled = new Promise<void>((resolve) => (settled = resolve));
  const hear = (message: FillerMessage): void => {
    if ('filled' in message) {
      total.leaves += message.filled;
      total.acceptMs += message.acceptMs;
      total.settleMs += message.settleMs;
    } else if ('leftovers' in message) {
      total.leaves += message.leftovers;
      settled();
    } else if ('over' in message) total.cpuSeconds += message.cpuSeconds;
    else say(message.failed);
  };
  const fillers = Array.from({ length: plan.processes }, (_, i) => {
    const filler = startChild({
      file: builtFile('bench/filling/filler'),
      profileDir: plan.profileDir,
      onMessage: (message) => hear(message as FillerMessage),
    });
    children.push(filler);
    const { count, processes, group, lanes } = plan;
    const task: FillerTask = {
      engineUrl: registry.roleUrl('svc_engine'),
      workerUrl: registry.roleUrl('svc_worker'),
      aepKeyFile: registry.keyFiles.aep,
      tenant,
      count: Math.floor(count / processes) + (i < count % processes ? 1 : 0),
      group,
      lanes,
      settleLeftovers: i === 0,
    };
    // The others wait: what they accept is nobody's leftover.
    if (i === 0) filler.send(task);
    else void leftoversSettled.then(() => filler.send(task));
    return filler;
  });
  const peakMiB = await untilFilled(fillers, progress, signal);
  const seconds = (performance.now() - began) / 1000;
  const { leaves, cpuSeconds, acceptMs, settleMs } = total;
  const each = (ms: number): string => `${((ms * 1000) / Math.max(1, leaves)).toFixed(0)} µs`;
  const note = `a lane took ${each(acceptMs)} a proof to have it accepted, ${each(settleMs)} to settle it`;
  return { stage: 'fill', leaves, seconds, cpuSeconds, peakMiB, note };
}

/** The tenant of the registry's API key, as the engine finds it. */
export async function whoAsks(
  registry: BenchRegistry,
  owner: Pool,
): Promise<FillContext['tenant']> {
  const { keyId } = parseApiKey(registry.apiKey) ?? {};
  const credential = (await authenticate(owner, [keyId ?? ''])).get(keyId ?? '');
  if (credential === undefined) throw new Error('the API key is not known');
  const { tenantId, tenantNo, keyNo } = credential;
  return { tenantId, tenantNo, keyNo };
}

/** The most that one of them had resident, in MiB. */
async function untilFilled(
  fillers: Child[],
  progress: Progress,
  signal: AbortSignal,
): Promise<number> {
  let peakMiB = 0;
  let isOver = false;
  const all = Promise.all(fillers.map(requireDone)).then(() => (isOver = true));
  while (!isOver) {
    await Promise.race([all, sleep(200)]);
    signal.throwIfAborted();
    const peaks = fillers.map((filler) => resourcesOf(filler.pid)?.peakMiB ?? 0);
    peakMiB = Math.max(peakMiB, ...peaks);
    await progress.tell();
  }
  return peakMiB;
}

async function requireDone(filler: Child): Promise<void> {
  if ((await filler.exited) !== 0) throw new Error('a filling process failed');
}
