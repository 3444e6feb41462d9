import type { Sha256 } from '#protocol/hash';
import { leafHash } from '#protocol/merkle';
import { nativeSha256 } from '#runtime/crypto/node';

/** Native speed, and plain arrays that compare equal to other plain arrays. */
export const sha256: Sha256 = (data) => new Uint8Array(nativeSha256(data));

/** Hashes of `count` different leaves, the same ones every time. */
export function leafHashes(count: number): Uint8Array[] {
  return Array.from({ length: count }, (_, i) =>
    leafHash(sha256, Uint8Array.of(i & 0xff, (i >> 8) & 0xff, i >> 16)),
  );
}
