import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchRegistry, proofsAmong, verifiedSize } from './registry.js';
import type { UnexpectedAnswers } from './scenario.js';

export const PROOF_PATH = '/api/public/verify/proof/';

export const proofPath = (proofId: string): string => PROOF_PATH + proofId;

export interface Readiness {
  generation: number;
  tree_size: number;
  lookup_from: number;
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

/** A running service and its registry, which lists the public leaves that are proofs. */
export interface Service {
  publicUrl: string;
  registry: Pick<BenchRegistry, 'owner'>;
}

interface Publication {
  treeSize: number;
  /** The leaves below this index have public verdicts; later leaves of the published tree have none yet. */
  size: number;
  proofs: number;
  at: number;
}

/** The published verdicts. With `since`, counts only the proofs after that publication. */
export async function published(
  { publicUrl, registry: { owner } }: Service,
  since: Omit<Publication, 'at'> = { treeSize: 0, size: 0, proofs: 0 },
): Promise<Publication> {
  const { tree_size: treeSize } = await readiness(publicUrl);
  const at = performance.now();
  if (treeSize === since.treeSize) return { ...since, at };
  const size = await verifiedSize(owner, treeSize);
  const proofs = since.proofs + (await proofsAmong(owner, since.size, size));
  return { treeSize, size, proofs, at };
}

/**
 * Waits for the next publication that adds proofs. Proofs are published thousands at a time, so a
 * rate is measured from one publication to another.
 */
export async function nextPublication(
  service: Service,
  signal: AbortSignal,
  since?: Publication,
): Promise<Publication> {
  const now = await published(service, since);
  return untilPublished(service, now.proofs + 1, signal, now);
}

const POLL_MS = 20;

export async function untilPublished(
  service: Service,
  atLeast: number,
  signal: AbortSignal,
  since?: Publication,
): Promise<Publication> {
  for (let now = await published(service, since); ; now = await published(service, now)) {
    signal.throwIfAborted();
    if (now.proofs >= atLeast) return now;
    await sleep(POLL_MS);
  }
}

export async function untilIdle(service: Service, signal: AbortSignal): Promise<void> {
  for (let before = await published(service); ;) {
    await sleep(3_000, undefined, { signal });
    const now = await published(service, before);
    if (now.proofs === before.proofs) return;
    before = now;
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
