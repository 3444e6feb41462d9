import { ProtocolError } from './errors.js';

// The WHATWG encoders exist in every browser and in Node, but not in TypeScript's ECMAScript types.
// Declaring only the encoders keeps the DOM types, and I/O, out of this package.
interface Encoding {
  TextEncoder: new () => {
    encode(text: string): Uint8Array;
    encodeInto(text: string, to: Uint8Array): { written: number };
  };
  TextDecoder: new (
    label: string,
    options: { fatal: boolean; ignoreBOM: boolean },
  ) => { decode(bytes: Uint8Array | Uint16Array): string };
}
const { TextEncoder, TextDecoder } = globalThis as unknown as Encoding;
const encoder = new TextEncoder();
// ignoreBOM keeps a leading U+FEFF in the text, so that strict parsers reject it.
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const lossyDecoder = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true });

/** The two hex digits of each byte, as one 16-bit unit in memory order. */
const HEX_PAIRS = new Uint16Array(
  encoder.encode(
    Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0')).join(''),
  ).buffer,
);
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const ALPHABET_URL = ALPHABET.slice(0, 62) + '-_';
const STANDARD = alphabet(ALPHABET);
const URL_SAFE = alphabet(ALPHABET_URL);
const VALUES = valuesIn(ALPHABET);
const VALUES_URL = valuesIn(ALPHABET_URL);
const NIBBLES = valuesIn('0123456789abcdef');

interface Alphabet {
  codes: Uint8Array;
  pairs: Uint16Array;
}

function alphabet(characters: string): Alphabet {
  const codes = encoder.encode(characters);
  const pairs = new Uint8Array(2 * 4096);
  for (let bits = 0; bits < 4096; bits++) {
    pairs[2 * bits] = codes[bits >> 6]!;
    pairs[2 * bits + 1] = codes[bits & 63]!;
  }
  return { codes, pairs: new Uint16Array(pairs.buffer) };
}

/** The value of each digit by its character code; -1 for other characters. */
function valuesIn(alphabet: string): Int8Array {
  const values = new Int8Array(128).fill(-1);
  for (let i = 0; i < alphabet.length; i++) values[alphabet.charCodeAt(i)] = i;
  return values;
}

/** Lower-case hexadecimal, two characters a byte. */
export function toHex(bytes: Uint8Array): string {
  const text = new Uint16Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) text[i] = HEX_PAIRS[bytes[i]!]!;
  return decoder.decode(text);
}

/** The inverse of {@link toHex}. Rejects upper case and odd length as `malformed_hex`. */
export function fromHex(text: string): Uint8Array {
  if (text.length % 2 !== 0) throw new ProtocolError('malformed_hex', 'hex of odd length');
  const bytes = new Uint8Array(text.length / 2);
  for (let i = 0; i < bytes.length; i++) {
    const high = NIBBLES[text.charCodeAt(2 * i)] ?? -1;
    const low = NIBBLES[text.charCodeAt(2 * i + 1)] ?? -1;
    if (high < 0 || low < 0) {
      throw new ProtocolError('malformed_hex', 'expected lower-case hexadecimal');
    }
    bytes[i] = high * 16 + low;
  }
  return bytes;
}

/** Standard base64 with padding (RFC 4648 §4). */
export function toBase64(bytes: Uint8Array): string {
  return encode64(bytes, STANDARD, true);
}

/** The URL-safe alphabet without padding (RFC 4648 §5). */
export function toBase64Url(bytes: Uint8Array): string {
  return encode64(bytes, URL_SAFE, false);
}

/**
 * The inverse of {@link toBase64}. Missing padding, white space and non-zero trailing bits are
 * `malformed_base64`, so each byte string has one encoding.
 */
export function fromBase64(text: string): Uint8Array {
  if (text.length % 4 !== 0) throw malformed64();
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  return decode64(text, text.length - padding, VALUES);
}

export function fromBase64Url(text: string): Uint8Array {
  return decode64(text, text.length, VALUES_URL);
}

function encode64(bytes: Uint8Array, alphabet: Alphabet, padded: boolean): string {
  const { codes, pairs } = alphabet;
  const whole = bytes.length - (bytes.length % 3);
  const rest = bytes.length - whole;
  const length = (whole / 3) * 4 + (rest === 0 ? 0 : padded ? 4 : rest + 1);
  // Prefills the buffer with padding. Decoding one buffer is several times faster than joining strings;
  // a 16-bit unit writes two characters at once.
  const text = new Uint16Array(Math.ceil(length / 2)).fill(0x3d3d);
  let to = 0;
  for (let i = 0; i < whole; i += 3) {
    const bits = (bytes[i]! << 16) | (bytes[i + 1]! << 8) | bytes[i + 2]!;
    text[to++] = pairs[bits >> 12]!;
    text[to++] = pairs[bits & 4095]!;
  }
  const characters = new Uint8Array(text.buffer, 0, length);
  if (rest > 0) {
    let at = 2 * to;
    const bits = (bytes[whole]! << 8) | (bytes[whole + 1] ?? 0);
    characters[at++] = codes[bits >> 10]!;
    characters[at++] = codes[(bits >> 4) & 63]!;
    if (rest === 2) characters[at] = codes[(bits & 15) << 2]!;
  }
  return decoder.decode(characters);
}

function decode64(text: string, length: number, values: Int8Array): Uint8Array {
  const bytes = new Uint8Array(Math.floor((length * 3) / 4));
  let buffered = 0;
  let bits = 0;
  let at = 0;
  for (let i = 0; i < length; i++) {
    const value = values[text.charCodeAt(i)] ?? -1;
    if (value < 0) throw malformed64();
    buffered = ((buffered << 6) | value) & 0xffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = buffered >> bits;
    }
  }
  // Unused bits after the last byte must be zero, and no unused character may remain.
  if (bits >= 6 || (buffered & ((1 << bits) - 1)) !== 0) throw malformed64();
  return bytes;
}

function malformed64(): ProtocolError {
  return new ProtocolError('malformed_base64', 'not canonical base64');
}

const loneSurrogate = /\p{Surrogate}/u;

/** Whether every surrogate is half of a pair, so that the string has a UTF-8 form. */
export function isWellFormed(text: string): boolean {
  const native = (text as { isWellFormed?: () => boolean }).isWellFormed;
  return native === undefined ? !loneSurrogate.test(text) : native.call(text);
}

/** Encodes as UTF-8. Throws `lone_surrogate`; the platform's encoder would replace the surrogate. */
export function utf8(text: string): Uint8Array {
  requireWellFormed(text);
  return encoder.encode(text);
}

/**
 * Like {@link utf8}, into a buffer with room for three bytes per character: faster for short texts.
 *
 * @returns the number of written bytes
 */
export function writeUtf8(text: string, to: Uint8Array): number {
  requireWellFormed(text);
  return encoder.encodeInto(text, to).written;
}

function requireWellFormed(text: string): void {
  if (!isWellFormed(text)) {
    throw new ProtocolError('lone_surrogate', 'text with a lone surrogate has no UTF-8 form');
  }
}

/** Decodes UTF-8; throws `invalid_utf8`. Keeps a byte order mark as U+FEFF. */
export function fromUtf8(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    throw new ProtocolError('invalid_utf8', 'not valid UTF-8', { cause });
  }
}

export function fromUtf8Lossy(bytes: Uint8Array): string {
  return lossyDecoder.decode(bytes);
}

/** Whether a value is a Uint8Array, even of another realm, where `instanceof` fails. */
export function isBytes(value: unknown): value is Uint8Array {
  return Object.prototype.toString.call(value) === '[object Uint8Array]';
}

/** Joins bytes of any realm: noble's function rejects a `Buffer` of another realm, as in jsdom. */
export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Compares public bytes. Not constant time: never use it for secrets. */
export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
