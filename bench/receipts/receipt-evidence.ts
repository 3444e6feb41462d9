import { setTimeout as sleep } from 'node:timers/promises';
import { openCheckpoint } from '#protocol/checkpoint';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { inclusionFromTiles, tilePath, type TileReader } from '#protocol/tiles';
import { loadSigningKey, nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { engineHeaders } from '../harness/engine-api.js';
import { PROOF_PATH } from '../harness/public-api.js';
import type { BenchStack } from '../harness/stack.js';
import type { PinnedKeys, PublicVerdict, ReceiptEvidence } from './receipt-faults.js';

/** A client outside the service: two URLs, an API key and two pinned public keys. */
export interface Outsider {
  engineUrl: string;
  publicUrl: string;
  /** For calls of the engine API. */
  headers: Record<string, string>;
  trust: PinnedKeys;
}

export function outsiderOf({
  engineUrl,
  publicUrl,
  registry,
}: Pick<BenchStack, 'engineUrl' | 'publicUrl' | 'registry'>): Outsider {
  return {
    engineUrl,
    publicUrl,
    headers: engineHeaders(registry),
    trust: {
      aepKey: loadSigningKey(registry.keyFiles.aep).publicKey,
      logVkey: registry.vkeys.log,
      logOrigin: registry.origin,
    },
  };
}

/**
 * Fetches everything that the two APIs publish about a proof.
 *
 * @throws Error when the proof is not public, or cannot be exported, within `publicWithinMs`
 */
export async function gatherEvidence(
  outsider: Outsider,
  proofId: string,
  publicWithinMs: number,
): Promise<Pick<ReceiptEvidence, 'verdict' | 'exported' | 'checkpoint' | 'path'>> {
  const { engineUrl, publicUrl, headers } = outsider;
  const deadline = performance.now() + publicWithinMs;
  const verdict = (await untilFound(publicUrl + PROOF_PATH + proofId, {
    pending: 404,
    deadline,
  })) as PublicVerdict;
  const exported = (await untilFound(`${engineUrl}/v1/proofs/${proofId}/export`, {
    headers,
    pending: 409,
    deadline,
  })) as ProofExport;
  const checkpoint = Buffer.from(await bytesAt(`${publicUrl}/log/checkpoint`)).toString();
  const { logVkey, logOrigin } = outsider.trust;
  const { size } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify, nativeSha256);
  const read: TileReader = (level, index, width) =>
    bytesAt(`${publicUrl}/log/${tilePath(level, index, width)}`);
  const path = await inclusionFromTiles(nativeSha256, verdict.integrity.leaf_index, size, read);
  return { verdict, exported, checkpoint, path };
}

const POLL_MS = 200;

/** Repeats the request while the status is the one that means "not yet". */
async function untilFound(
  url: string,
  {
    headers = {},
    pending,
    deadline,
  }: { headers?: Record<string, string>; pending: number; deadline: number },
): Promise<unknown> {
  for (;;) {
    const response = await fetch(url, { headers });
    const body: unknown = await response.json();
    if (response.status === 200) return body;
    if (response.status !== pending || performance.now() > deadline) {
      throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
    }
    await sleep(POLL_MS);
  }
}

async function bytesAt(url: string): Promise<Uint8Array> {
  const response = await fetch(url);
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (response.status === 200) return bytes;
  throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
}
