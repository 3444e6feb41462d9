import { describe, expect, it } from 'vitest';
import { concat, utf8, fromHex, isWellFormed, toHex } from '#protocol/bytes';
import {
  parseStrict,
  type JsonValue,
  canonicalBytes,
  canonicalize,
  isCanonical,
} from '#protocol/json';
import { refusal } from '../fixtures/refusal.js';
import fc from 'fast-check';
import serialize from 'canonicalize';
import rfc8785 from '../vectors/rfc8785.json' with { type: 'json' };

const text = fc
  .string({ unit: 'binary', maxLength: 8 })
  .filter((value) => isWellFormed(value) && !value.includes('\0'));

const number = fc
  .oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.maxSafeInteger())
  .filter(
    (value) => !Number.isInteger(value) || Number.isSafeInteger(value) || Math.abs(value) >= 1e21,
  );

/** Every JSON value that the strict parser accepts, a few levels deep. */
const strictJson: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
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

const parse = (text: string): JsonValue => parseStrict(utf8(text));
const refused = (text: string) => {
  const { code, pointer } = refusal(() => parse(text));
  return { code, pointer };
};

describe('strict JSON parser', () => {
  it('accepts the same short texts as JSON.parse', () => {
    const unit = fc.constantFrom(...'{}[]:,"\\u00b1-+.eE \n\t0a', 'true', 'null', '""', '"a"');
    fc.assert(
      fc.property(fc.string({ unit, maxLength: 14 }), (text) => {
        let expected: unknown;
        try {
          expected = JSON.parse(text);
        } catch {
          expect(refused(text).code).toBe('malformed_json');
          return;
        }
        try {
          expect(parse(text)).toEqual(expected);
        } catch (error) {
          expect(error).toHaveProperty(
            'code',
            expect.stringMatching(/^(duplicate_key|integer_out_of_range|nul_character)$/),
          );
        }
      }),
      { numRuns: 3000 },
    );
  });

  it.each(['\ufeff{}', "{'a':1}", '01', '"\u0000"', '"\\x41"', '{} {}', '/**/1', '\u00a01'])(
    'rejects %j as malformed',
    (text) => {
      expect(refused(text).code).toBe('malformed_json');
    },
  );

  it('rejects a duplicate member name at any depth and in any spelling', () => {
    expect(refused('{"a":1,"a":1}')).toEqual({ code: 'duplicate_key', pointer: '/a' });
    expect(refused('[0,{"b":{"c~/":1,"c\\u007e\\/":2}}]')).toEqual({
      code: 'duplicate_key',
      pointer: '/1/b/c~0~1',
    });
    expect(refused('{"__proto__":1,"__proto__":2}').code).toBe('duplicate_key');
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('o', 'a'), { maxLength: 20 }),
        fc.string({ unit: 'binary' }).filter((name) => !name.includes('\0')),
        strictJson,
        (wrappers, name, value) => {
          const member = `${JSON.stringify(name)}:${JSON.stringify(value)}`;
          let text = `{${member},${member}}`;
          for (const wrapper of wrappers) text = wrapper === 'o' ? `{"w":${text}}` : `[${text}]`;
          expect(refused(text).code).toBe('duplicate_key');
        },
      ),
    );
  });

  it('keeps member names that are special in JavaScript', () => {
    const value = parse('{"__proto__":{"x":1},"constructor":2,"toString":3}') as object;
    expect(Object.keys(value)).toEqual(['__proto__', 'constructor', 'toString']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect((value as Record<string, unknown>).x).toBeUndefined();
  });

  it.each([
    ['{"a":"\\ud800"}', '/a'],
    ['{"a":"\\ude00\\ud83d"}', '/a'],
    ['["\\ud83d\\u0041"]', '/0'],
    ['{"\\udfff":1}', ''],
  ])('rejects the lone surrogate in %s', (text, pointer) => {
    expect(refused(text)).toEqual({ code: 'lone_surrogate', pointer });
  });

  it('rejects U+0000 in strings and names', () => {
    expect(refused('{"a":["x\\u0000"]}')).toEqual({ code: 'nul_character', pointer: '/a/0' });
    expect(refused('{"\\u0000":1}')).toEqual({ code: 'nul_character', pointer: '' });
  });

  it.each(['9007199254740992', '9007199254740993.0', '1e20', '1e400'])(
    'rejects the number %s',
    (number) => {
      expect(refused(`{"n":[${number}]}`)).toEqual({
        code: 'integer_out_of_range',
        pointer: '/n/0',
      });
    },
  );

  it.each([
    ['{"a":[01]}', 'malformed_json', '/a'],
    ['{"a":[1.]}', 'malformed_json', '/a'],
    ['{"a":1e}', 'malformed_json', ''],
    ['{"a":[nullx]}', 'malformed_json', '/a'],
    ['1.5.', 'malformed_json', ''],
    ['[-]', 'malformed_json', '/0'],
    ['[+1]', 'malformed_json', '/0'],
    ['[.5]', 'malformed_json', '/0'],
    ['[nul]', 'malformed_json', '/0'],
    ['[1e400x]', 'integer_out_of_range', '/0'],
  ])('rejects text directly after a number or literal: %s', (text, code, pointer) => {
    expect(refused(text)).toEqual({ code, pointer });
  });

  it('rejects nesting beyond the limit of open arrays and objects', () => {
    const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    expect(parse(nested(32))).toBeDefined();
    expect(refused(nested(33))).toEqual({ code: 'too_deep', pointer: '/0'.repeat(32) });
    expect(refused('{"a":'.repeat(65) + '1' + '}'.repeat(65)).code).toBe('too_deep');
    expect(refused('['.repeat(1_000_000)).code).toBe('too_deep');
    // Siblings do not count towards the nesting limit.
    expect(parse(`[${Array(100).fill('[],{}').join(',')}]`)).toHaveLength(200);
    expect(refusal(() => parseStrict(utf8('[[]]'), { maxDepth: 1 })).code).toBe('too_deep');
  });

  it.each([
    [[0xff], 0],
    [[0xed, 0xa0, 0x80], 0],
    [[0xc3, 0xa9, 0xef, 0x41], 2],
    [[0xef, 0xbf, 0xbd, 0xf0, 0x9f, 0x98], 3],
  ])('reports the position of bytes that are not UTF-8: %j', (bytes, offset) => {
    const start = utf8('{"a":["');
    const error = refusal(() => parseStrict(concat(start, Uint8Array.from(bytes), utf8('"]}'))));
    expect(error.code).toBe('invalid_utf8');
    expect(error.pointer).toBe('/a/0');
    expect(error.message).toContain(`byte ${start.length + offset}`);
  });
});

function double(ieee754: string): number {
  return Buffer.from(ieee754, 'hex').readDoubleBE();
}

describe('canonicalize (RFC 8785)', () => {
  it.each(rfc8785.numbers)('prints the double $ieee754 as $text', ({ ieee754, text }) => {
    expect(canonicalize(double(ieee754))).toBe(text);
  });

  it.each(rfc8785.refused_numbers)('rejects the double %s', (ieee754) => {
    expect(refusal(() => canonicalize([double(ieee754)])).pointer).toBe('/0');
  });

  it.each(rfc8785.documents)('canonicalizes the published document $name', (document) => {
    const canonical = canonicalBytes(parseStrict(utf8(document.input)));
    expect(toHex(canonical)).toBe(document.canonical_hex);
    expect(isCanonical(fromHex(document.canonical_hex))).toBe(true);
  });

  it('sorts members by UTF-16 code units, as section 3.2.3 of the RFC requires', () => {
    const sorted = canonicalize(parseStrict(utf8(rfc8785.sorting.input)));
    expect(Object.values(JSON.parse(sorted) as object).length).toBe(7);
    const places = rfc8785.sorting.value_order.map((value) => sorted.indexOf(`"${value}"`));
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(places.every((place) => place > 0)).toBe(true);
  });
});

describe('canonical JSON', () => {
  it('equals plain serialization for documents with ordered members', () => {
    const plain = fc.letrec<{ value: JsonValue }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.string({ unit: 'binary' }),
        fc.constant(null),
        fc.dictionary(fc.oneof(fc.string({ unit: 'binary' }), fc.nat().map(String)), tie('value')),
      ),
    })).value;
    fc.assert(
      fc.property(fc.oneof(plain, strictJson), (value) => {
        expect(canonicalize(value)).toBe(serialize(value));
      }),
    );
  });

  it.each(['{"b":1,"a":2}', '[1.0]', '"\\/"', '\ufeff1', '{"a":1,"a":1}', ''])(
    'isCanonical rejects %j',
    (text) => {
      expect(isCanonical(utf8(text))).toBe(false);
    },
  );

  it('rejects values without a JSON form instead of omitting them', () => {
    const lone = refusal(() => canonicalize({ a: ['\udc00'] }));
    expect([lone.code, lone.pointer]).toEqual(['lone_surrogate', '/a/0']);
    expect(refusal(() => canonicalize({ '\ud800': 1 })).code).toBe('lone_surrogate');
    for (const foreign of [undefined, 1n, () => 1, Symbol('s')]) {
      const error = refusal(() => canonicalize({ a: foreign } as unknown as JsonValue));
      expect([error.code, error.pointer]).toEqual(['malformed_json', '/a']);
    }
  });
});
