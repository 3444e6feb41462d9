import { setTimeout as sleep } from 'node:timers/promises';
import { verifyOffline, type OfflineResult } from '#protocol/offline';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { Stack } from '../stack.js';
import { engineHeaders } from './actions.js';

const TIMEOUT_MS = 10_000;

/**
 * Exports a proof with everything that an offline check needs. Retries while the proof is
 * unverified or not covered by a checkpoint.
 */
export async function exportProof(stack: Stack, proofId: string): Promise<string> {
  const path = `/v1/proofs/${proofId}/export`;
  const deadline = performance.now() + TIMEOUT_MS;
  for (;;) {
    const response = await fetch(`${stack.engineUrl}${path}`, { headers: engineHeaders(stack) });
    // Unparsed: the offline check does not trust the server.
    const body = await response.text();
    if (response.ok) return body;
    if (response.status !== 409 || performance.now() > deadline) {
      throw new OperatorError(`${path} was answered ${String(response.status)}`);
    }
    await sleep(200);
  }
}

/** Checks an export with the stack's keys, not with keys from the document. */
export function checkOffline(stack: Stack, exported: string): OfflineResult {
  const origin = stack.logVkey.slice(0, stack.logVkey.indexOf('+'));
  return verifyOffline(
    exported,
    { aepKeys: [stack.aepPublicKey], log: { vkey: stack.logVkey, origin } },
    { sha256: nativeSha256, verify: nativeVerify },
  );
}
