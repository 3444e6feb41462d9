import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import type { Admitted } from './actions.js';

const publicSchema = z.looseObject({
  verification: z.looseObject({
    verification_status: z.string(),
    can_assert_validity: z.boolean(),
  }),
});

export interface Verdict {
  admitted: Admitted;
  /** Null when there was none in time. */
  status: string | null;
  assertsValidity: boolean;
  /** From the receipt to the public verdict, in milliseconds. */
  afterMs: number;
}

const ASK_EVERY_MS = 100;

async function lookUp(
  publicUrl: string,
  proofId: string,
): Promise<Omit<Verdict, 'admitted' | 'afterMs'>> {
  const response = await fetch(`${publicUrl}/api/public/verify/proof/${proofId}`);
  const body: unknown = await response.json();
  // 404: not in the snapshot yet. 503: no snapshot that may be believed.
  if (response.status !== 200) return { status: null, assertsValidity: false };
  const { verification } = publicSchema.parse(body);
  return {
    status: verification.verification_status,
    assertsValidity: verification.can_assert_validity,
  };
}

/** Asks the public API, as anybody can, until it has a verdict on the proof. */
export async function follow(
  publicUrl: string,
  admitted: Admitted,
  patienceMs: number,
): Promise<Verdict> {
  for (;;) {
    const found = await lookUp(publicUrl, admitted.receipt.registry_proof_id);
    const afterMs = performance.now() - admitted.at;
    if (found.status !== null || afterMs > patienceMs) return { admitted, ...found, afterMs };
    await sleep(ASK_EVERY_MS);
  }
}
