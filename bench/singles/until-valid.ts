import { setTimeout as sleep } from 'node:timers/promises';
import type { Unexpected } from '../rows/unexpected.js';

/** What the figures are true to, beside the time of one lookup. */
export const ASK_EVERY_MS = 10;
const TIMEOUT_MS = 30_000;

/**
 * Asks the public proof route until it says VALID.
 *
 * @returns when the answer had come, by `performance.now`; null when anything but "not found" came
 *   instead, or nothing in time, which is unexpected
 */
export async function untilValid(
  publicUrl: string,
  proofId: string,
  unexpected: Unexpected,
): Promise<number | null> {
  const deadline = performance.now() + TIMEOUT_MS;
  while (performance.now() < deadline) {
    const response = await fetch(`${publicUrl}/api/public/verify/proof/${proofId}`);
    const body = (await response.json()) as {
      verification?: { verification_status?: string };
    };
    const status = body.verification?.verification_status ?? '';
    if (response.status === 200 && status === 'VALID') return performance.now();
    if (response.status !== 404) {
      unexpected.add(`lookup ${String(response.status)} ${status}`);
      return null;
    }
    await sleep(ASK_EVERY_MS);
  }
  unexpected.add('not public in time');
  return null;
}
