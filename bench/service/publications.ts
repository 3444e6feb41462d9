import { setTimeout as sleep } from 'node:timers/promises';
import { readiness } from './readiness.js';

/** A moment at which more became public, and how much there was then. */
export interface Publication {
  proofs: number;
  /** By `performance.now`. */
  at: number;
}

const LOOK_EVERY_MS = 20;

/**
 * Waits until the facade serves more proofs than it does now. Proofs become public some thousands at
 * a time: a rate is taken from one such moment to another, or it would be off by as many.
 */
export async function nextPublication(
  publicUrl: string,
  signal: AbortSignal,
): Promise<Publication> {
  const { proofs: before } = await readiness(publicUrl);
  return untilPublished(publicUrl, before + 1, signal);
}

/** Waits until so many proofs are public. */
export async function untilPublished(
  publicUrl: string,
  least: number,
  signal: AbortSignal,
): Promise<Publication> {
  for (;;) {
    signal.throwIfAborted();
    const { proofs } = await readiness(publicUrl);
    if (proofs >= least) return { proofs, at: performance.now() };
    await sleep(LOOK_EVERY_MS);
  }
}
