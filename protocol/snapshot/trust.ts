import { equalBytes } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { parseVkey, type Vkey } from '../note.js';

/** One key at least; the first is the one in use, the others were in use before it. */
export type PinnedKeys = readonly [Vkey, ...Vkey[]];

/**
 * The public keys that a reader of snapshots pins. While a key is being changed there are two of
 * it: the old one, under which the last snapshots are signed, and the new one.
 */
export interface SnapshotTrust {
  log: PinnedKeys;
  snapshot: PinnedKeys;
}

/**
 * Pins verifier keys of one name: a log is its origin, and keys of two logs would make one of them.
 * `malformed_vkey` when one is unusable or twice there, the names differ, or there is none.
 */
export function pinKeys(sha256: Sha256, vkeys: readonly string[]): PinnedKeys {
  const [first, ...others] = vkeys.map((vkey) => parseVkey(vkey, sha256));
  if (first === undefined) throw new ProtocolError('malformed_vkey', 'no verifier key is pinned');
  others.forEach((other, index) => {
    if (other.name !== first.name) {
      throw new ProtocolError(
        'malformed_vkey',
        `the verifier keys are of ${first.name} and of ${other.name}, which is another`,
      );
    }
    const before = [first, ...others.slice(0, index)];
    if (before.some(({ publicKey }) => equalBytes(publicKey, other.publicKey))) {
      throw new ProtocolError('malformed_vkey', `a verifier key of ${first.name} is there twice`);
    }
  });
  return [first, ...others];
}
