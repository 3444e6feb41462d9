import { sha256 } from '@noble/hashes/sha2.js';
import { toHex, utf8 } from '../../protocol/bytes.js';
import { canonicalize, pointerStep, type JsonValue } from '../../protocol/json.js';
import { attempt } from '../../protocol/errors.js';
import { canonicalHash } from '../canonical.js';
import { SdkError } from '../errors.js';

/**
 * SHA-256 of the value's RFC 8785 form. Throws `invalid_input` for a value that is not plain JSON: the
 * JSON of a Date or a Map omits data that the tool gets, so different calls would have the same hash.
 */
export function plainHash(value: unknown): string {
  requirePlain(value);
  return canonicalHash(value);
}

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
        requirePlain(item);
        hash.update(utf8(separator + canonicalize(item)));
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

/** @param path keys that lead to the value, joined only for an error: values may have millions of members */
function requirePlain(
  value: unknown,
  path: (string | number)[] = [],
  ancestors = new Set<object>(),
): asserts value is JsonValue {
  if (typeof value !== 'object' || value === null) {
    // Canonicalization checks strings and numbers later.
    if (['string', 'number', 'boolean'].includes(typeof value) || value === null) return;
    throw notPlain(`${typeof value} has no JSON form`, path);
  }
  if (ancestors.has(value)) throw notPlain('the value contains itself', path);
  const isArray = Array.isArray(value);
  const keys = isArray ? [] : Object.keys(value);
  // JSON omits hidden members and symbol members: the hash would not cover them.
  const hidden = Reflect.ownKeys(value).length - keys.length;
  const isPlain = isArray ? hidden === value.length + 1 : hidden === 0 && isPlainObject(value);
  if (!isPlain) throw notPlain('the value is not plain JSON', path);
  ancestors.add(value);
  const check = (key: string | number): void => {
    path.push(key);
    requirePlain((value as Record<string, unknown>)[key], path, ancestors);
    path.pop();
  };
  // Iterates by index, so that a hole in the array is checked as undefined.
  if (isArray) for (let at = 0; at < value.length; at++) check(at);
  else keys.forEach(check);
  ancestors.delete(value);
}

/** Whether an object is plain, including objects of another realm. */
function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return (
    prototype === null ||
    (Object.getPrototypeOf(prototype) === null &&
      Object.hasOwn(prototype as object, 'isPrototypeOf'))
  );
}

function notPlain(message: string, path: (string | number)[]): SdkError {
  const pointer = path.map(pointerStep).join('');
  return new SdkError('invalid_input', `${pointer || '/'}: ${message}`, { pointer });
}
