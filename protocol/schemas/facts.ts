import * as z from 'zod';
import { utf8 } from '../bytes.js';
import { isObject } from '../json.js';
import { safeParse } from './messages.js';
import { isAscending, textOf } from './primitives.js';

export const FACT_NAME_PATTERN = /^[a-z][a-z0-9_]{0,63}$/;
const DECIMAL_PATTERN = /^-?(0|[1-9][0-9]{0,14})\.[0-9]{1,4}$/;
const FACTS_MAX = 32;
const FACTS_BYTES_MAX = 4_096;
const SET_MAX = 32;

const stringSchema = textOf(0, 1_024);

/** A Cedar decimal: a signed 64-bit count of 0.0001, without −2^63, so the range is symmetric. */
const decimalSchema = z
  .string()
  .refine(
    isDecimal,
    'expected a decimal with one to four places, such as 480.00, within ±922337203685477.5807',
  )
  .meta({
    pattern: DECIMAL_PATTERN.source,
    description: 'A Cedar decimal, not a negative zero, within ±922337203685477.5807.',
  });

export function isDecimal(text: string): boolean {
  if (!DECIMAL_PATTERN.test(text)) return false;
  const isNegativeZero = text.startsWith('-') && Number(text) === 0;
  // Only a decimal with fifteen digits before the point can exceed the range.
  const isInRange = text.length <= 15 || decimalUnits(text.replace('-', '')) < 2n ** 63n;
  return isInRange && !isNegativeZero;
}

/** The value of a decimal in units of 0.0001. */
export function decimalUnits(text: string): bigint {
  const point = text.indexOf('.');
  return BigInt(text.slice(0, point) + text.slice(point + 1).padEnd(4, '0'));
}

const factValueSchema = z.union(
  [
    z.strictObject({ decimal: decimalSchema }),
    stringSchema,
    z.int(),
    z.boolean(),
    z
      .array(stringSchema)
      .max(SET_MAX)
      .refine(isAscending, 'expected distinct strings in ascending order')
      .describe('Distinct strings in ascending order of UTF-16 code units.'),
  ],
  'expected a string, an integer, a boolean, {"decimal": …} or an array of strings',
);
export type FactValue = z.infer<typeof factValueSchema>;

const COUNT_FAULT = `expected 1 to ${FACTS_MAX} facts`;
export const NAME_FAULT = `expected a name that matches ${FACT_NAME_PATTERN.source}`;

const recordSchema = z
  .record(z.string().regex(FACT_NAME_PATTERN), factValueSchema, {
    error: ({ code }) => (code === 'invalid_key' ? NAME_FAULT : undefined),
  })
  .refine((facts) => Object.keys(facts).length >= 1, COUNT_FAULT)
  .refine((facts) => {
    // JSON.stringify and RFC 8785 differ only in the order of members, so both texts have equal lengths.
    const text = JSON.stringify(facts);
    const mostBytes = 3 * text.length;
    return mostBytes <= FACTS_BYTES_MAX || utf8(text).length <= FACTS_BYTES_MAX;
  }, `expected at most ${FACTS_BYTES_MAX} bytes in canonical form`)
  .meta({ minProperties: 1, maxProperties: FACTS_MAX });
export type Facts = z.infer<typeof recordSchema>;

/** The facts that an agent states about an action. */
export const factsSchema = z
  .unknown()
  .superRefine((facts, context) => {
    // zod also runs this check for an absent member. Parsing would fail, which costs microseconds.
    if (facts === undefined) return;
    // Counts the members before it parses: zod would take 0.2 s to report an error for each of thousands of members.
    if (isObject(facts) && Object.keys(facts).length > FACTS_MAX) {
      context.addIssue({ code: 'custom', message: COUNT_FAULT });
      return;
    }
    const { error } = safeParse(recordSchema, facts);
    for (const issue of error?.issues ?? []) context.addIssue({ ...issue });
    // zod drops `__proto__`, but the stored request would keep it.
    if (typeof facts === 'object' && facts !== null && Object.hasOwn(facts, '__proto__')) {
      context.addIssue({ code: 'custom', path: ['__proto__'], message: NAME_FAULT });
    }
  })
  .meta(recordSchema.toJSONSchema()) as z.ZodType as z.ZodType<Facts>;
