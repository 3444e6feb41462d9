import serialize from 'canonicalize';
import { equalBytes, isWellFormed, utf8 } from './bytes.js';
import { attempt, ProtocolError } from './errors.js';
import { parseStrict, pointerStep, type JsonValue } from './json.js';

/**
 * The RFC 8785 form of a value: no white space, members sorted by UTF-16 code units (§3.2.3),
 * numbers and strings as ECMAScript prints them (§3.2.2).
 *
 * Throws with a pointer for values outside I-JSON (RFC 7493): `lone_surrogate` in a string or a
 * name, `integer_out_of_range` for NaN and the infinities. Throws `malformed_json` for a value that
 * JSON cannot express (undefined, a bigint, a function): omitting it would change the document.
 */
export function canonicalize(value: JsonValue): string {
  const text = printed(value);
  if (text !== undefined && !SURROGATE_ESCAPE.test(text)) return text;
  refuseForeign(value, '');
  return serialize(value)!;
}

/**
 * The same text in one pass, or undefined if the value needs the checks of `write`. A lone
 * surrogate shows as an escape; ECMAScript prints strings and numbers as RFC 8785 requires.
 */
function printed(value: unknown): string | undefined {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') return Number.isFinite(value) ? String(value) : undefined;
  if (typeof value === 'boolean' || value === null) return String(value);
  if (Array.isArray(value)) return printedArray(value);
  if (typeof value !== 'object' || !isPlain(value)) return undefined;
  let text = '{';
  for (const key of Object.keys(value).sort()) {
    const member = printed(value[key]);
    if (member === undefined) return undefined;
    text += `${text === '{' ? '' : ','}${JSON.stringify(key)}:${member}`;
  }
  return text + '}';
}

function printedArray(values: readonly unknown[]): string | undefined {
  let text = '[';
  for (let i = 0; i < values.length; i++) {
    const item = printed(values[i]);
    if (item === undefined) return undefined;
    text += i === 0 ? item : `,${item}`;
  }
  return text + ']';
}

function isPlain(value: object): value is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(value);
  return (prototype === Object.prototype || prototype === null) && !('toJSON' in value);
}

/** {@link canonicalize} as UTF-8: the bytes that are hashed and signed. */
export function canonicalBytes(value: JsonValue): Uint8Array {
  return utf8(canonicalize(value));
}

/**
 * {@link canonicalBytes} for a value whose members are already in canonical order, several times
 * faster: ECMAScript prints strings and numbers as RFC 8785 prescribes. Only for documents of fixed
 * shape, each with a test that compares it with {@link canonicalBytes}.
 */
export function orderedBytes(value: JsonValue): Uint8Array {
  return utf8(orderedText(value));
}

/** {@link orderedBytes} as text. */
export function orderedText(value: JsonValue): string {
  const text = JSON.stringify(value);
  // `JSON.stringify` escapes a lone surrogate; `canonicalize` rejects it.
  return SURROGATE_ESCAPE.test(text) ? canonicalize(value) : text;
}

const SURROGATE_ESCAPE = /\\ud[89a-f]/;

/** Whether the bytes are strict JSON in RFC 8785 form. Never throws. */
export function isCanonical(bytes: Uint8Array): boolean {
  const canonical = attempt(() => canonicalBytes(parseStrict(bytes)));
  return canonical !== undefined && equalBytes(canonical, bytes);
}

function refuseForeign(value: unknown, pointer: string): void {
  if (typeof value === 'string') {
    if (!isWellFormed(value)) {
      throw new ProtocolError('lone_surrogate', 'string contains a lone surrogate', { pointer });
    }
  } else if (typeof value === 'number') {
    if (!Number.isFinite(value)) {
      throw new ProtocolError('integer_out_of_range', 'number is not finite', { pointer });
    }
  } else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) refuseForeign(value[i], pointer + pointerStep(i));
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value)) {
      refuseForeign(key, pointer);
      refuseForeign(member, pointer + pointerStep(key));
    }
  } else if (typeof value !== 'boolean' && value !== null) {
    throw new ProtocolError('malformed_json', `a value of type ${typeof value} is not JSON`, {
      pointer,
    });
  }
}
