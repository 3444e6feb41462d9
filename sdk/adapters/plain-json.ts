import { sha256 } from '@noble/hashes/sha2.js';
import { toHex, utf8 } from '../../protocol/bytes.js';
import { canonicalize } from '../../protocol/canonical-json.js';
import { ProtocolError } from '../../protocol/errors.js';
import { pointerStep, type JsonValue } from '../../protocol/json.js';
import { canonicalHash } from '../canonical.js';

/**
 * SHA-256 of the value's RFC 8785 form. Throws `ProtocolError` for what is no plain JSON: a Date or
 * a Map would be printed as something that says less than the tool gets, and another call would
 * have the same hash.
 */
export function plainHash(value: unknown): string {
  requirePlain(value, '', new Set());
  return canonicalHash(value);
}

/** The same of a result; absent for one that has no such form. */
export function resultHash(value: unknown): string | undefined {
  try {
    return plainHash(value);
  } catch {
    return undefined;
  }
}

/** The hash of a list that comes item by item and is never held. */
export interface ListHash {
  add(item: unknown): void;
  /** Of the list so far as a JSON array; absent once an item had no such form. */
  digest(): string | undefined;
}

export function openListHash(): ListHash {
  const hash = sha256.create();
  let separator = '[';
  let isPlain = true;
  return {
    add: (item) => {
      if (!isPlain) return;
      try {
        requirePlain(item, '', new Set());
        hash.update(utf8(separator + canonicalize(item)));
        separator = ',';
      } catch {
        isPlain = false;
      }
    },
    digest: () =>
      isPlain
        ? toHex(
            hash
              .clone()
              .update(utf8(separator === '[' ? '[]' : ']'))
              .digest(),
          )
        : undefined,
  };
}

function requirePlain(
  value: unknown,
  pointer: string,
  within: Set<object>,
): asserts value is JsonValue {
  if (typeof value !== 'object' || value === null) {
    // Strings and numbers are looked at when they are printed.
    if (['string', 'number', 'boolean'].includes(typeof value) || value === null) return;
    throw noJson(`${typeof value} has no JSON form`, pointer);
  }
  if (within.has(value)) throw noJson('it contains itself', pointer);
  const keys = Object.keys(value);
  // Holes, hidden members and those under symbols would be left out of the hash.
  const hidden = Reflect.ownKeys(value).length - keys.length;
  const isList = Array.isArray(value);
  if (
    isList ? hidden !== 1 || keys.length !== value.length : hidden !== 0 || !isPlainObject(value)
  ) {
    throw noJson('it is more than plain JSON', pointer);
  }
  within.add(value);
  for (const key of keys) {
    requirePlain((value as Record<string, unknown>)[key], pointer + pointerStep(key), within);
  }
  within.delete(value);
}

/** Of this realm or another. */
function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return (
    prototype === null ||
    (Object.getPrototypeOf(prototype) === null &&
      Object.hasOwn(prototype as object, 'isPrototypeOf'))
  );
}

function noJson(message: string, pointer: string): ProtocolError {
  return new ProtocolError('malformed_json', message, { pointer });
}
