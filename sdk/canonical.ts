import { utf8 } from '../protocol/bytes.js';
import { canonicalize, pointerStep, type JsonValue } from '../protocol/json.js';
import { ProtocolError } from '../protocol/errors.js';
import { hashHex, nobleSha256 } from '../protocol/hash.js';
import { SdkError } from './errors.js';

/**
 * The RFC 8785 form of plain JSON. Throws `invalid_input` for undefined, a lone surrogate, a number that is
 * not finite, and an object that is not plain: the JSON of a Date, a Map or an instance of a class may omit data,
 * so different values would have the same form. `toJSON` is not called. For the JSON that `JSON.stringify` makes of
 * such a value, pass `JSON.parse(JSON.stringify(value))`.
 *
 * @param value an object of any type, because TypeScript does not assign interface types to `JsonValue`
 */
export function canonicalJson(value: JsonValue | object): string {
  try {
    requirePlain(value);
    return canonicalize(value);
  } catch (cause) {
    if (cause instanceof SdkError) throw cause;
    // Any other error: the stack overflowed, or a getter of the value threw.
    const reason =
      cause instanceof RangeError ? 'the value is nested too deeply' : 'has no JSON form';
    const { message, pointer = '' } = cause instanceof ProtocolError ? cause : { message: reason };
    throw new SdkError('invalid_input', `${pointer || '/'}: ${message}`, { pointer, cause });
  }
}

/**
 * A request body: the RFC 8785 form of a document, so that the body has the document's hash. Throws
 * `invalid_input`.
 */
export const canonicalBody = (document: object): Uint8Array => utf8(canonicalJson(document));

/**
 * SHA-256 of the RFC 8785 form, as 64 lower-case hex characters: the form of `arguments_hash`,
 * `result_hash` and `request_hash`. Throws like `canonicalJson`.
 */
export function canonicalHash(value: JsonValue | object): string {
  return hashHex(nobleSha256, utf8(canonicalJson(value)));
}

/** @param path keys that lead to the value, joined only for an error: values may have millions of members */
function requirePlain(
  value: unknown,
  path: (string | number)[] = [],
  ancestors = new Set<object>(),
): asserts value is JsonValue {
  if (typeof value !== 'object' || value === null) {
    // Accepts every string and number here: `canonicalize` checks them.
    if (['string', 'number', 'boolean'].includes(typeof value) || value === null) return;
    throw notPlain(`${typeof value} has no JSON form`, path);
  }
  if (ancestors.has(value)) throw notPlain('the value contains itself', path);
  const isArray = Array.isArray(value);
  const keys = isArray ? [] : Object.keys(value);
  // Rejects hidden members and symbol members: JSON omits them, so the hash would not cover them.
  const hidden = Reflect.ownKeys(value).length - keys.length;
  if (!isArray && !isPlainObject(value)) {
    throw notPlain(`a value of the type ${typeName(value)} is not plain JSON`, path);
  }
  if (hidden !== (isArray ? value.length + 1 : 0)) {
    const what = isArray
      ? 'the array has holes, or members that are not items'
      : 'the object has symbol or non-enumerable members';
    throw notPlain(what, path);
  }
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

function typeName(value: object): string {
  const constructor: unknown = Reflect.get(value, 'constructor');
  return typeof constructor === 'function' ? constructor.name : 'object';
}

function notPlain(message: string, path: (string | number)[]): SdkError {
  const pointer = path.map(pointerStep).join('');
  return new SdkError('invalid_input', `${pointer || '/'}: ${message}`, { pointer });
}
