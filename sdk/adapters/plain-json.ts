import { sha256 } from '@noble/hashes/sha2.js';
import { toHex, utf8 } from '../../protocol/bytes.js';
import type { JsonValue } from '../../protocol/json.js';
import { attempt } from '../../protocol/errors.js';
import { canonicalHash, canonicalJson } from '../canonical.js';

/** {@link canonicalHash} of a value of unknown type. */
export const plainHash = (value: unknown): string => canonicalHash(value as JsonValue);

/** Like {@link plainHash}, but undefined for a value that is not plain JSON. */
export function resultHash(value: unknown): string | undefined {
  return attempt(() => plainHash(value));
}

/** The hash of a list whose items arrive one by one. Keeps no items in memory. */
export function openListHash() {
  const hash = sha256.create();
  let separator = '[';
  let isPlain = true;
  return {
    add: (item: unknown): void => {
      if (!isPlain) return;
      try {
        hash.update(utf8(separator + canonicalJson(item as JsonValue)));
        separator = ',';
      } catch {
        isPlain = false;
      }
    },
    /** Hash of the items so far as a JSON array; undefined after an item that is not plain JSON. */
    digest: (): string | undefined => {
      if (!isPlain) return undefined;
      const end = utf8(separator === '[' ? '[]' : ']');
      return toHex(hash.clone().update(end).digest());
    },
  };
}
