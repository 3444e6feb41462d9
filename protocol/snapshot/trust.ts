import { equalBytes } from '../bytes.js';
import { errorOf } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { type LogVkey, parseVkey } from '../note.js';

/** A C2SP vkey. Checkpoints of a size greater than `from_size` do not count. */
export type PinnedLogKey = string | { vkey: string; from_size?: number | null | undefined };

/** At least one key: first the current key, then former keys. */
export type PinnedKeys = readonly [LogVkey, ...LogVkey[]];

/**
 * Pins vkeys of one name, which is the log's origin: keys of different logs must not be mixed. Throws
 * `malformed_vkey` for an unusable key, a repeated key id, different names, or an empty list.
 */
export function pinKeys(sha256: Sha256, vkeys: readonly PinnedLogKey[]): PinnedKeys {
  const [first, ...others] = vkeys.map((pin) => logKeyOf(sha256, pin));
  if (first === undefined) throw malformedVkey('no vkey is pinned');
  others.forEach((other, index) => {
    if (other.name !== first.name)
      throw malformedVkey(`the vkeys have different names: ${first.name} and ${other.name}`);
    const before = [first, ...others.slice(0, index)];
    // A signature states only the name and the id of its key.
    if (before.some(({ keyHash }) => equalBytes(keyHash, other.keyHash)))
      throw malformedVkey(`two vkeys of ${first.name} are equal or have the same key id`);
  });
  return [first, ...others];
}

const malformedVkey = errorOf('malformed_vkey');

function logKeyOf(sha256: Sha256, pin: PinnedLogKey): LogVkey {
  const { vkey, from_size: size = null } =
    typeof pin === 'object' && pin !== null ? pin : { vkey: pin };
  if (typeof vkey !== 'string') throw malformedVkey('expected a vkey');
  if (size === null) return parseVkey(vkey, sha256);
  if (Number.isSafeInteger(size) && size >= 0) {
    return { ...parseVkey(vkey, sha256), maxSize: size };
  }
  throw malformedVkey('expected a log size or null as the bound of the key');
}
