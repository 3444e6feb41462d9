import fc from 'fast-check';
import { isWellFormed } from '#protocol/bytes';
import type { JsonValue } from '#protocol/json';

const text = fc
  .string({ unit: 'binary', maxLength: 8 })
  .filter((value) => isWellFormed(value) && !value.includes('\0'));

const number = fc
  .oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.maxSafeInteger())
  .filter(
    (value) => !Number.isInteger(value) || Number.isSafeInteger(value) || Math.abs(value) >= 1e21,
  );

/** Every JSON value that the strict parser accepts, a few levels deep. */
export const strictJson: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    fc.constantFrom(null, true, false),
    number,
    text,
    fc.array(tie('value'), { maxLength: 5 }),
    fc
      .uniqueArray(fc.tuple(text, tie('value')), { maxLength: 5, selector: ([name]) => name })
      .map((members) => Object.fromEntries(members)),
  ),
})).value;
