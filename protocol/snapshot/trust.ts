import { equalBytes } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { parseVkey, type Vkey } from '../note.js';

/** At least one key: first the current one, then former ones. */
export type PinnedKeys = readonly [Vkey, ...Vkey[]];

/**
 * Pins verifier keys of one name, which is the log's origin: keys of two logs must not mix. Throws
 * `malformed_vkey` for an unusable or duplicate key, different names, or an empty list.
 */
export function pinKeys(sha256: Sha256, vkeys: readonly string[]): PinnedKeys {
  const [first, ...others] = vkeys.map((vkey) => parseVkey(vkey, sha256));
  if (first === undefined) throw new ProtocolError('malformed_vkey', 'no verifier key is pinned');
  others.forEach((other, index) => {
    if (other.name !== first.name) {
      throw new ProtocolError(
        'malformed_vkey',
        `the verifier keys have different names: ${first.name} and ${other.name}`,
      );
    }
    const before = [first, ...others.slice(0, index)];
    if (before.some(({ publicKey }) => equalBytes(publicKey, other.publicKey))) {
      throw new ProtocolError('malformed_vkey', `duplicate verifier key of ${first.name}`);
    }
  });
  return [first, ...others];
}
