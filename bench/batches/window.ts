import { setTimeout as sleep } from 'node:timers/promises';
import { cpuBetween, sampleCpu, type CpuShares, type Watched } from '../figures/cpu-shares.js';
import { nextPublication } from '../service/publications.js';

/** Became public in a while, how long that was, and who took how much of the machine for it. */
export interface Window {
  proofs: number;
  seconds: number;
  cpu: CpuShares;
}

/** From one publication to another: whole ones, or the rate would be off by one of them. */
export async function measureWindow(
  publicUrl: string,
  watched: Watched,
  {
    warmUpSeconds,
    seconds,
    signal,
  }: { warmUpSeconds: number; seconds: number; signal: AbortSignal },
): Promise<Window> {
  await nextPublication(publicUrl, signal);
  await sleep(warmUpSeconds * 1000, undefined, { signal });
  const from = await nextPublication(publicUrl, signal);
  const cpuFrom = sampleCpu(watched);
  await sleep(seconds * 1000, undefined, { signal });
  const to = await nextPublication(publicUrl, signal);
  const proofs = to.proofs - from.proofs;
  const cpu = cpuBetween(cpuFrom, sampleCpu(watched), proofs);
  return { proofs, seconds: (to.at - from.at) / 1000, cpu };
}
