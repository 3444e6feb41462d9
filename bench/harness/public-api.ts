import { setTimeout as sleep } from 'node:timers/promises';
import type { UnexpectedAnswers } from './scenario.js';

export const PROOF_PATH = '/api/public/verify/proof/';

export const proofPath = (proofId: string): string => PROOF_PATH + proofId;

export interface Readiness {
  generation: number;
  tree_size: number;
  proofs: number;
}

/** @throws Error when the public API serves no snapshot */
export async function readiness(publicUrl: string): Promise<Readiness> {
  const response = await fetch(`${publicUrl}/readyz`);
  const body: unknown = await response.json();
  if (response.status === 200) return body as Readiness;
  throw new Error(`the public API is not ready: ${JSON.stringify(body)}`);
}

const READY_WITHIN_MS = 60_000;

export async function untilReady(publicUrl: string): Promise<void> {
  const deadline = performance.now() + READY_WITHIN_MS;
  for (;;) {
    const ready = await readiness(publicUrl).catch((error: unknown) => {
      if (performance.now() > deadline) throw error;
      return null;
    });
    if (ready !== null) return;
    await sleep(5);
  }
}

interface Publication {
  proofs: number;
  at: number;
}

/**
 * Waits for the next publication that adds proofs. Proofs are published thousands at a time, so a
 * rate is measured from one publication to another.
 */
export async function nextPublication(
  publicUrl: string,
  signal: AbortSignal,
): Promise<Publication> {
  const { proofs: before } = await readiness(publicUrl);
  return untilPublished(publicUrl, before + 1, signal);
}

const POLL_MS = 20;

export async function untilPublished(
  publicUrl: string,
  atLeast: number,
  signal: AbortSignal,
): Promise<Publication> {
  for (;;) {
    signal.throwIfAborted();
    const { proofs } = await readiness(publicUrl);
    if (proofs >= atLeast) return { proofs, at: performance.now() };
    await sleep(POLL_MS);
  }
}

/** Waits until no further proof becomes public. */
export async function untilIdle(publicUrl: string, signal: AbortSignal): Promise<void> {
  for (let before = -1; ;) {
    const { proofs } = await readiness(publicUrl);
    if (proofs === before) return;
    before = proofs;
    await sleep(3_000, undefined, { signal });
  }
}

/** Polling interval of `untilValid`, and so the resolution of its result. */
export const LOOKUP_EVERY_MS = 10;
const VALID_WITHIN_MS = 30_000;

/**
 * Looks a proof up until the verdict is VALID.
 *
 * @returns the time of that response by `performance.now`; null after 30 s, or after any response
 *   but "not found", which is counted as unexpected
 */
export async function untilValid(
  publicUrl: string,
  proofId: string,
  unexpected: UnexpectedAnswers,
): Promise<number | null> {
  const deadline = performance.now() + VALID_WITHIN_MS;
  while (performance.now() < deadline) {
    const response = await fetch(publicUrl + proofPath(proofId));
    const body = (await response.json()) as {
      verification?: { verification_status?: string };
    };
    const status = body.verification?.verification_status ?? '';
    if (response.status === 200 && status === 'VALID') return performance.now();
    if (response.status !== 404) {
      unexpected.add(`lookup ${String(response.status)} ${status}`);
      return null;
    }
    await sleep(LOOKUP_EVERY_MS);
  }
  unexpected.add('not public in time');
  return null;
}
