import serialize from 'canonicalize';
import { fromUtf8, fromUtf8Lossy, isWellFormed, utf8, equalBytes } from './bytes.js';
import { ProtocolError, type ProtocolErrorCode, attempt } from './errors.js';

export type JsonValue =
  null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };

export function isObject(value: unknown): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export interface StrictJsonOptions {
  /** How many arrays and objects may be open at once; 32 by default. */
  maxDepth?: number;
}

/**
 * Parses JSON (RFC 8259) that has exactly one meaning for every reader: UTF-8 without a byte order
 * mark, no duplicate member names, Unicode strings without U+0000, numbers that a double
 * represents.
 *
 * Rejects integers beyond ±(2^53−1), and numbers that RFC 8785 prints as such an integer
 * (`9007199254740993.0`, `1e20`): two readers would disagree about their digits. Accepts numbers
 * that RFC 8785 prints with an exponent (`1E30`) as doubles.
 *
 * Throws a ProtocolError with an RFC 6901 pointer: `invalid_utf8`, `malformed_json` (the message
 * has the byte offset), `duplicate_key`, `lone_surrogate`, `nul_character`, `integer_out_of_range`,
 * `too_deep`.
 */
export function parseStrict(bytes: Uint8Array, options: StrictJsonOptions = {}): JsonValue {
  const maxDepth = options.maxDepth ?? 32;
  let text: string;
  try {
    text = fromUtf8(bytes);
  } catch (cause) {
    throw invalidUtf8(bytes, maxDepth, cause);
  }
  return new StrictReader(text, maxDepth).document();
}

/** One step of an RFC 6901 pointer, with `~` and `/` escaped. */
export function pointerStep(key: string | number): string {
  return '/' + String(key).replaceAll('~', '~0').replaceAll('/', '~1');
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;

class StrictReader {
  private at = 0;
  private depth = 0;
  private readonly path: (string | number)[] = [];

  constructor(
    private readonly text: string,
    private readonly maxDepth: number,
  ) {}

  document(): JsonValue {
    this.skipSpace();
    const value = this.value();
    this.skipSpace();
    if (this.at < this.text.length) throw this.malformed('unexpected text after the document');
    return value;
  }

  private value(): JsonValue {
    switch (this.text.charCodeAt(this.at)) {
      case 0x7b:
        return this.object();
      case 0x5b:
        return this.array();
      case 0x22:
        return this.string();
      case 0x74:
        return this.literal('true', true);
      case 0x66:
        return this.literal('false', false);
      case 0x6e:
        return this.literal('null', null);
      default:
        return this.number();
    }
  }

  private object(): JsonValue {
    const object: { [key: string]: JsonValue } = {};
    for (let more = this.opens(0x7d); more; more = this.continues(0x7d, "',' or '}'")) {
      if (this.text.charCodeAt(this.at) !== 0x22) throw this.malformed('expected a member name');
      const key = this.string();
      this.path.push(key);
      if (Object.hasOwn(object, key)) {
        throw this.error('duplicate_key', 'duplicate member name');
      }
      this.skipSpace();
      if (!this.takes(0x3a)) throw this.malformed("expected ':'");
      this.skipSpace();
      const value = this.value();
      // Plain assignment to `__proto__` would set the prototype.
      if (key === '__proto__') {
        Object.defineProperty(object, key, {
          value,
          writable: true,
          enumerable: true,
          configurable: true,
        });
      } else {
        object[key] = value;
      }
      this.path.pop();
    }
    return object;
  }

  private array(): JsonValue {
    const array: JsonValue[] = [];
    for (let more = this.opens(0x5d); more; more = this.continues(0x5d, "',' or ']'")) {
      this.path.push(array.length);
      array.push(this.value());
      this.path.pop();
    }
    return array;
  }

  /** Enters an array or object. Returns false when it is empty. */
  private opens(end: number): boolean {
    this.at++;
    if (++this.depth > this.maxDepth) {
      throw this.error('too_deep', `nested deeper than ${this.maxDepth} levels`);
    }
    this.skipSpace();
    return !this.closes(end);
  }

  /** Moves past the separator after an item. Returns whether another item follows. */
  private continues(end: number, expected: string): boolean {
    this.skipSpace();
    if (this.closes(end)) return false;
    if (!this.takes(0x2c)) throw this.malformed(`expected ${expected}`);
    this.skipSpace();
    return true;
  }

  private closes(end: number): boolean {
    const isEnd = this.takes(end);
    if (isEnd) this.depth--;
    return isEnd;
  }

  private string(): string {
    const start = this.at++;
    let hasEscape = false;
    for (; ; this.at++) {
      const code = this.text.charCodeAt(this.at);
      // Past the end the code is NaN, which `code < 0x20` would miss.
      if (!(code >= 0x20)) throw this.malformed('unterminated string or raw control character');
      if (code === 0x22) break;
      if (code !== 0x5c) continue;
      hasEscape = true;
      this.at++;
    }
    this.at++;
    if (!hasEscape) return this.text.slice(start + 1, this.at - 1);
    const decoded = attempt(() => JSON.parse(this.text.slice(start, this.at)) as string);
    if (decoded === undefined) throw this.malformed('malformed escape in the string that ends');
    // Only an escape can produce a lone surrogate or U+0000: UTF-8 excludes the former, and a raw
    // U+0000 is malformed.
    if (!isWellFormed(decoded)) {
      throw this.error('lone_surrogate', 'string contains a lone surrogate');
    }
    if (decoded.includes('\0')) throw this.error('nul_character', 'string contains U+0000');
    return decoded;
  }

  private number(): number {
    NUMBER.lastIndex = this.at;
    const match = NUMBER.exec(this.text);
    if (match === null) throw this.malformed('expected a value');
    const value = Number(match[0]);
    const writtenAsInteger = match[1] === undefined && match[2] === undefined;
    const printedAsInteger = Math.abs(value) < 1e21 && Number.isInteger(value);
    if (
      !Number.isFinite(value) ||
      ((writtenAsInteger || printedAsInteger) && !Number.isSafeInteger(value))
    ) {
      throw this.error('integer_out_of_range', 'number exceeds the exact range of a double');
    }
    this.at += match[0].length;
    return value;
  }

  private literal<T extends boolean | null>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) throw this.malformed('expected a value');
    this.at += word.length;
    return value;
  }

  private skipSpace(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.at++;
    }
  }

  private takes(code: number): boolean {
    if (this.text.charCodeAt(this.at) !== code) return false;
    this.at++;
    return true;
  }

  private malformed(what: string): ProtocolError {
    const offset = utf8(this.text.slice(0, this.at)).length;
    return this.error('malformed_json', `${what} at byte ${offset}`);
  }

  private error(code: ProtocolErrorCode, message: string): ProtocolError {
    return new ProtocolError(code, message, { pointer: this.path.map(pointerStep).join('') });
  }
}

/** The pointer of invalid UTF-8 is the parser's position at the end of the valid prefix. */
function invalidUtf8(bytes: Uint8Array, maxDepth: number, cause: unknown): ProtocolError {
  const offset = validPrefix(bytes);
  let pointer = '';
  try {
    new StrictReader(fromUtf8(bytes.subarray(0, offset)), maxDepth).document();
  } catch (error) {
    if (error instanceof ProtocolError) pointer = error.pointer ?? '';
  }
  return new ProtocolError('invalid_utf8', `not valid UTF-8 at byte ${offset}`, { pointer, cause });
}

/** Length of the longest prefix that is UTF-8 text. */
function validPrefix(bytes: Uint8Array): number {
  const replaced = utf8(fromUtf8Lossy(bytes));
  let at = 0;
  while (at < bytes.length && bytes[at] === replaced[at]) at++;
  // A replacement character may share its first bytes with the bytes that it replaced.
  while (at > 0 && (replaced[at]! & 0xc0) === 0x80) at--;
  return at;
}

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
  requireIJson(value, '');
  return serialize(value)!;
}

/**
 * The canonical text in one pass, or undefined if the value needs the checks of `requireIJson`. A lone
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
 * The text of {@link canonicalBytes} for a value whose members are already in canonical order, several times
 * faster: ECMAScript prints strings and numbers as RFC 8785 prescribes. Only for documents of fixed
 * shape, each with a test that compares it with {@link canonicalBytes}.
 */
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

/** @throws ProtocolError for a value outside I-JSON */
function requireIJson(value: unknown, pointer: string): void {
  if (typeof value === 'string') {
    if (!isWellFormed(value)) {
      throw new ProtocolError('lone_surrogate', 'string contains a lone surrogate', { pointer });
    }
  } else if (typeof value === 'number') {
    if (!Number.isFinite(value)) {
      throw new ProtocolError('integer_out_of_range', 'number is not finite', { pointer });
    }
  } else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) requireIJson(value[i], pointer + pointerStep(i));
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value)) {
      requireIJson(key, pointer);
      requireIJson(member, pointer + pointerStep(key));
    }
  } else if (typeof value !== 'boolean' && value !== null) {
    throw new ProtocolError('malformed_json', `a value of type ${typeof value} is not JSON`, {
      pointer,
    });
  }
}
