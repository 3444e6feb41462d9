import { setTimeout as sleep } from 'node:timers/promises';
import { urlOf, type Child } from './child.js';
import { expectedLookups, requireAnswer, type Expected } from '../lookups/lookups.js';
import { startProgram } from './programs.js';
import type { BenchRegistry } from './registry.js';
import { resourcesOf, type Resources } from '../figures/resources.js';
import type { Samples } from '../figures/samples.js';

/** How a facade came up over a snapshot, in milliseconds from the start of its process. */
export interface Served {
  listeningMs: number;
  readyMs: number;
  /** The first proof's verdict. */
  firstAnswerMs: number;
  lookups: Expected[];
  /** After the lookups. */
  resources: Resources | null;
}

/** Starts a facade, asks it everything that it has to know, and stops it. */
export async function serve(
  registry: BenchRegistry,
  samples: Samples,
  options: { recentLookupLimit: number; proofs: number },
  children: Child[],
): Promise<Served> {
  const { recentLookupLimit, proofs } = options;
  const lookups = expectedLookups(samples, proofs <= recentLookupLimit);
  const began = performance.now();
  const since = (): number => performance.now() - began;
  const facade = startProgram('facade', registry, { recentLookupLimit });
  children.push(facade);
  const url = await urlOf(facade, 'the facade');
  const listeningMs = since();
  await untilSnapshotIsServed(url);
  const readyMs = since();
  const [first, ...others] = lookups;
  if (first !== undefined) await requireAnswer(url, first);
  const firstAnswerMs = since();
  for (const lookup of others) await requireAnswer(url, lookup);
  const resources = resourcesOf(facade.pid);
  await facade.stop();
  return { listeningMs, readyMs, firstAnswerMs, lookups, resources };
}

const READY_WITHIN_MS = 60_000;

/** Waits until a facade serves a snapshot: what it is asked from then on it can answer. */
export async function untilSnapshotIsServed(url: string): Promise<void> {
  const deadline = performance.now() + READY_WITHIN_MS;
  while (performance.now() < deadline) {
    const response = await fetch(`${url}/readyz`);
    await response.arrayBuffer();
    if (response.status === 200) return;
    await sleep(5);
  }
  throw new Error('the facade did not become ready');
}
