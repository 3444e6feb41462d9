import type { Sha256 } from '../hash.js';

export const HASH_BYTES = 32;

// Hashing is synchronous and keeps no input, so all calls share one buffer: an allocation for each
// would cost as much as the hash.
const scratch = new Uint8Array(1024);
const node = scratch.subarray(0, 1 + 2 * HASH_BYTES);

/** Hash of a leaf, RFC 6962 §2.1: SHA-256(0x00 || entry). */
export function leafHash(sha256: Sha256, entry: Uint8Array): Uint8Array {
  const length = 1 + entry.length;
  const input = length <= scratch.length ? scratch.subarray(0, length) : new Uint8Array(length);
  input[0] = 0;
  input.set(entry, 1);
  return sha256(input);
}

/** Hash of an inner node, RFC 6962 §2.1: SHA-256(0x01 || left || right). */
export function nodeHash(sha256: Sha256, left: Uint8Array, right: Uint8Array): Uint8Array {
  node[0] = 1;
  node.set(left, 1);
  node.set(right, 1 + HASH_BYTES);
  return sha256(node);
}

/** Root of the empty tree, RFC 6962 §2.1: SHA-256 of the empty string. */
export function emptyRoot(sha256: Sha256): Uint8Array {
  return sha256(new Uint8Array(0));
}

/** Root over adjacent subtrees from left to right, none taller than the one before it. */
export function foldRight(sha256: Sha256, hashes: readonly Uint8Array[]): Uint8Array {
  if (hashes.length === 0) return emptyRoot(sha256);
  let root = hashes[hashes.length - 1]!;
  for (let i = hashes.length - 2; i >= 0; i--) root = nodeHash(sha256, hashes[i]!, root);
  return root;
}
