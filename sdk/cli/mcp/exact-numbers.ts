import { randomUUID } from 'node:crypto';
import type { JsonValue } from '../../../protocol/json.js';

/** Random, so that no message of a host or server contains this mark. */
const MARK = randomUUID();
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const KEPT = new RegExp(`\\["${MARK}","([^"]*)"\\]`);
const ALL_KEPT = new RegExp(KEPT, 'g');
const INTEGER = /^-?\d+$/;
/** A number of at most 15 significant digits keeps its value as a double. */
const SHORT = /^-?[\d.]{1,15}$/;
const LONG = /[\d.]{16}|\d[eE]/;
/** Limit of a number's length, so that comparing its digits does not take long. */
const MAX_CHARS = 400;

/**
 * Replaces each number that a double would change, or that strict JSON excludes, by an array of a mark and
 * the digits; {@link stringify} restores the number. A string in place of the array would be valid as a
 * member name, where a number is malformed.
 */
export function keepNumbers(text: string): string {
  let kept = '';
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    const end = quote === -1 ? text.length : quote;
    const tokens = text.slice(at, end);
    kept += LONG.test(tokens)
      ? tokens.replace(NUMBER, (digits) => (isExact(digits) ? digits : `["${MARK}","${digits}"]`))
      : tokens;
    at = endOfString(text, end);
    kept += text.slice(end, at);
  }
  return kept;
}

/** `JSON.stringify` of a value with kept numbers. */
export const stringify = (value: unknown): string =>
  JSON.stringify(value).replace(ALL_KEPT, (_array, digits: string) => digits);

export const keptNumberIn = (value: JsonValue): string | undefined =>
  KEPT.exec(JSON.stringify(value))?.[1];

function endOfString(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    at = text.indexOf('"', at);
    if (at === -1) return text.length;
    let first = at;
    while (text[first - 1] === '\\') first--;
    // An even number of backslashes does not escape the quote.
    if ((at - first) % 2 === 0) return at + 1;
  }
}

function isExact(digits: string): boolean {
  if (SHORT.test(digits)) return true;
  const value = Number(digits);
  const printed = String(value);
  // Strict JSON rejects unsafe integers, and doubles below 1e21 that JavaScript prints as unsafe integers.
  const isInteger = Number.isInteger(value) && (Math.abs(value) < 1e21 || INTEGER.test(digits));
  if (isInteger && !Number.isSafeInteger(value)) return false;
  if (printed === digits) return true;
  return digits.length <= MAX_CHARS && decimalOf(digits) === decimalOf(printed);
}

/** Significant digits and exponent, which are equal for all texts of one number. */
function decimalOf(number: string): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(number) ?? [];
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (significant === '') return '0';
  const shift = digits.length - significant.length - fraction.length;
  return `${sign}${significant}e${String(Number(exponent) + shift)}`;
}
