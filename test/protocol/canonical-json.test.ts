import serialize from 'canonicalize';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromHex, toHex, utf8 } from '#protocol/bytes';
import {
  canonicalBytes,
  canonicalize,
  isCanonical,
  parseStrict,
  type JsonValue,
} from '#protocol/json';
import { strictJson } from '../fixtures/json-arbitrary.js';
import { refusal } from '../fixtures/refusal.js';
import rfc8785 from '../vectors/rfc8785.json' with { type: 'json' };

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
