import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { verifyOffline, type OfflineResult } from '#protocol/offline';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { nativeSha256, nativeVerify } from '#runtime/crypto';
import { OperatorError } from '#runtime/operator-error';
import type { Stack } from '../stack.js';
import { engineHeaders } from './actions.js';

const proofSchema = z.looseObject({
  aep: z.unknown(),
  log_entry: z.unknown(),
  proof_record: z.looseObject({
    envelope: z.unknown(),
    request_hash: z.string(),
    response_hash: z.string(),
  }),
});

const inclusionSchema = z.looseObject({ state: z.string(), inclusion: z.unknown() });

const CHECKPOINT_PATIENCE_MS = 10_000;

async function read(stack: Stack, path: string): Promise<unknown> {
  const response = await fetch(`${stack.engineUrl}${path}`, { headers: engineHeaders(stack) });
  const body: unknown = await response.json();
  if (response.ok) return body;
  throw new OperatorError(`${path} was answered ${String(response.status)}`);
}

/** What the tenant takes home: everything that is needed to check the proof without the service. */
export async function exportProof(stack: Stack, proofId: string): Promise<unknown> {
  const { aep, log_entry, proof_record } = proofSchema.parse(
    await read(stack, `/v1/proofs/${proofId}`),
  );
  const deadline = performance.now() + CHECKPOINT_PATIENCE_MS;
  for (;;) {
    const { state, inclusion } = inclusionSchema.parse(
      await read(stack, `/v1/proofs/${proofId}/inclusion`),
    );
    if (state === 'included') {
      // Parsed by whoever checks it, who believes nothing of it.
      const exported: Record<keyof ProofExport, unknown> = {
        schema_version: SCHEMA.proofExport,
        proof_id: proofId,
        aep,
        envelope: proof_record.envelope,
        proof_record,
        entry: log_entry,
        inclusion,
        keys: [
          {
            key_id: jwkThumbprint(nativeSha256, stack.aepPublicKey),
            public_key: toBase64Url(stack.aepPublicKey),
          },
        ],
        request_hash: proof_record.request_hash,
        response_hash: proof_record.response_hash,
      };
      return exported;
    }
    if (performance.now() > deadline) {
      throw new OperatorError(`no checkpoint covers proof ${proofId}`);
    }
    await sleep(200);
  }
}

/** Checks an export under the keys that came with the stack, not with the document. */
export function checkOffline(stack: Stack, exported: unknown): OfflineResult {
  const origin = stack.logVkey.slice(0, stack.logVkey.indexOf('+'));
  return verifyOffline(
    exported,
    { aepKeys: [stack.aepPublicKey], log: { vkey: stack.logVkey, origin } },
    { sha256: nativeSha256, verify: nativeVerify },
  );
}
