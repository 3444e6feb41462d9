import { setTimeout as sleep } from 'node:timers/promises';
import { openCheckpoint } from '#protocol/checkpoint';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { inclusionFromTiles, tilePath, type TileReader } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { OutsideTrust, PublicVerdict, ReceiptEvidence } from './receipt-faults.js';

/** Where somebody outside can ask, and with which key. */
export interface Outside {
  engineUrl: string;
  publicUrl: string;
  /** For the engine's calls. */
  headers: Record<string, string>;
  trust: OutsideTrust;
}

type Found = Pick<ReceiptEvidence, 'verdict' | 'exported' | 'checkpoint' | 'path'>;

const ASK_EVERY_MS = 200;

/**
 * Asks the facade and the engine for all that they say of a proof.
 *
 * @throws Error when the proof is not public, or cannot be exported, within `patienceMs`
 */
export async function gatherEvidence(
  outside: Outside,
  proofId: string,
  patienceMs: number,
): Promise<Found> {
  const { engineUrl, publicUrl, headers } = outside;
  const deadline = performance.now() + patienceMs;
  const verdict = (await untilFound(`${publicUrl}/api/public/verify/proof/${proofId}`, {
    pending: 404,
    deadline,
  })) as PublicVerdict;
  const exported = (await untilFound(`${engineUrl}/v1/proofs/${proofId}/export`, {
    headers,
    pending: 409,
    deadline,
  })) as ProofExport;
  const checkpoint = Buffer.from(await bytesAt(`${publicUrl}/log/checkpoint`)).toString();
  const { logVkey, logOrigin } = outside.trust;
  const { size } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify, nativeSha256);
  const read: TileReader = (level, index, width) =>
    bytesAt(`${publicUrl}/log/${tilePath(level, index, width)}`);
  const path = await inclusionFromTiles(nativeSha256, verdict.integrity.leaf_index, size, read);
  return { verdict, exported, checkpoint, path };
}

/** Asks again while the answer is the one that means "not yet". */
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
    await sleep(ASK_EVERY_MS);
  }
}

async function bytesAt(url: string): Promise<Uint8Array> {
  const response = await fetch(url);
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (response.status === 200) return bytes;
  throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
}
