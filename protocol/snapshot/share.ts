import { utf8 } from '../bytes.js';
import type { Sha256 } from '../hash.js';

export function tokenHash(sha256: Sha256, token: string): Uint8Array {
  return sha256(utf8(token));
}

export function shareIndexId(hash: Uint8Array): Uint8Array {
  return hash.subarray(0, 16);
}
