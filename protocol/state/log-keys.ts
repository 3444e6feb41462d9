import { equalBytes, fromBase64Url } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { keyId, type LogVkey } from '../note.js';
import type { PinnedKeys } from '../snapshot/trust.js';
import type { LogKey } from './log-state.js';

/** The keys of use `log` among the keys of a log, in the order of their activation. */
export function logKeysOf(sha256: Sha256, origin: string, keys: Iterable<LogKey>): LogVkey[] {
  return [...keys]
    .filter(({ use }) => use === 'log')
    .sort((a, b) => a.index - b.index)
    .map((key) => {
      const publicKey = fromBase64Url(key.publicKey!);
      const vkey = { name: origin, keyHash: keyId(sha256, origin, publicKey), publicKey };
      return key.retiredFrom === null ? vkey : { ...vkey, maxSize: key.retiredFrom };
    });
}

/** The pinned keys, with the keys that the pinned log activates. The log may only narrow a pin. */
export function withLogKeys(pinned: PinnedKeys, logged: readonly LogVkey[]): PinnedKeys {
  const isSame = (a: LogVkey, b: LogVkey): boolean => equalBytes(a.publicKey, b.publicKey);
  const [first, ...others] = pinned.map((pin) => {
    const bounds = [pin, ...logged.filter((one) => isSame(one, pin))].map((one) => one.maxSize);
    const maxSize = Math.min(...bounds.map((size = Infinity) => size));
    return maxSize === Infinity ? pin : { ...pin, maxSize };
  });
  const added = logged.filter((one) => !pinned.some((pin) => isSame(one, pin)));
  return [first!, ...others, ...added];
}
