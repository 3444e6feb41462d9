import { describe, expect, it, vi } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { parseStrict, canonicalBytes } from '#protocol/json';
import { executeRequestSchema, lookupRequestSchema, SCHEMA } from '#protocol/schemas/index';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { safeParse } from '#protocol/schemas/messages';
import { factsSchema } from '#protocol/schemas/facts';
import { admissionEnvelope, outcomeEnvelope } from '../fixtures/agent.js';
import fc from 'fast-check';
import * as z from 'zod';

const execute = {
  schema_version: 'svc.runtime.intent_execute.request/1.0',
  intent_id: 'i',
  tenant_id: 't',
  action: 'BOOK',
};

it('message of a fault > does not slow down the parsing of a valid value', () => {
  const schema = z.string();
  const parse = vi.spyOn(schema, 'safeParse');
  expect(safeParse(schema, 'a')).toEqual({ success: true, data: 'a' });
  // zod parses more slowly with options.
  expect(parse.mock.calls).toEqual([['a']]);
});

describe('execute request schema', () => {
  it.each([
    { schema_version: 'svc.runtime.intent_execute.request/1.1' },
    { extra: 1 },
    { action: 'book' },
    { action: 'A'.repeat(129) },
    { tenant_id: '-t' },
    { intent_id: '' },
    { idempotency_key: 'k'.repeat(256) },
    { idempotency_key: 'é' },
    { idempotency_key: undefined },
    { proof_chain_fixture_ref: '' },
  ])('rejects %j', (change) => {
    expect(executeRequestSchema.safeParse({ ...execute, ...change }).success).toBe(false);
  });

  it('rejects __proto__ as an unknown field', () => {
    const body = parseStrict(utf8(JSON.stringify(execute).replace('{', '{"__proto__":{},')));
    expect(executeRequestSchema.safeParse(body).success).toBe(false);
  });
});

describe('lookup request schema', () => {
  const schema_version = SCHEMA.lookupRequest;

  it.each([
    {},
    { proof_id: 'a', identifier: 'b' },
    { q: 'a' },
    { proof_id: 1 },
    { proof_id: 'a', schema_version: 'svc.public_verification.lookup_request/2.0' },
  ])('rejects %j', (body) => {
    expect(lookupRequestSchema.safeParse({ schema_version, ...body }).success).toBe(false);
  });
});

it('schema_version > has the form svc.<area>.<name>/<version> in every schema', () => {
  for (const id of Object.values(SCHEMA)) expect(id).toMatch(/^svc(\.[a-z_]+)+\/1\.[01]$/);
  expect(new Set(Object.values(SCHEMA)).size).toBe(Object.keys(SCHEMA).length);
});

const read = (text: string) => factsSchema.safeParse(parseStrict(utf8(text)));
const quoted = (length: number): string => JSON.stringify('é'.repeat(length));
const many = (count: number): string =>
  `{${Array.from({ length: count }, (_, i) => `"f${i}":1`).join()}}`;

it('strict parsing > rejects an integer that a double cannot represent, before the facts schema sees it', () => {
  expect(() => read('{"a":9007199254740993.0}')).toThrow('exact range');
});

describe('facts schema', () => {
  it.each([
    ['a string of 1,024 characters', `{"a":${quoted(1_024)}}`],
    ['an empty string', '{"a":""}'],
    ['the greatest and the least integer', '{"a":9007199254740991,"b":-9007199254740991}'],
    ['integers in any notation', '{"a":1.0,"b":5e2,"c":-0}'],
    [
      'the greatest and the least decimal',
      '{"a":{"decimal":"922337203685477.5807"},"b":{"decimal":"-922337203685477.5807"}}',
    ],
    ['a decimal of four places and a zero', '{"a":{"decimal":"0.0001"},"b":{"decimal":"0.0"}}'],
    ['a set and an empty set', '{"a":["a","b"],"b":[]}'],
    ['a name of 64 characters', `{"${'a'.repeat(64)}":true}`],
    ['32 facts', many(32)],
    ['4,096 bytes', `{"a":${quoted(1_024)},"b":${quoted(1_013)},"c":""}`],
  ])('accepts %s', (_, text) => {
    expect(read(text)).toMatchObject({ success: true });
  });

  it.each([
    ['a string of 1,025 characters', `{"a":${quoted(1_025)}}`],
    ['a number with a fraction', '{"a":480.5}'],
    ['a number beyond 2^53-1', '{"a":1e21}'],
    ['null', '{"a":null}'],
    ['a decimal with five places', '{"a":{"decimal":"4.00001"}}'],
    ['a decimal without places', '{"a":{"decimal":"480"}}'],
    ['a decimal with a leading zero', '{"a":{"decimal":"00.5"}}'],
    ['a decimal with an exponent', '{"a":{"decimal":"1.0e2"}}'],
    ['a decimal as a number', '{"a":{"decimal":480.5}}'],
    ['a negative zero', '{"a":{"decimal":"-0.00"}}'],
    ['a decimal beyond 64 bits', '{"a":{"decimal":"922337203685477.5808"}}'],
    [
      'the least 64-bit decimal, which has no negation',
      '{"a":{"decimal":"-922337203685477.5808"}}',
    ],
    ['a decimal with a second member', '{"a":{"decimal":"1.0","currency":"EUR"}}'],
    ['a Cedar escape', '{"a":{"__extn":{"fn":"decimal","arg":"1.0"}}}'],
    ['a set out of order', '{"a":["b","a"]}'],
    ['a set with a duplicate', '{"a":["a","a"]}'],
    ['a set of integers', '{"a":[1]}'],
    [
      'a set of 33 strings',
      `{"a":${JSON.stringify(Array.from({ length: 33 }, (_, i) => String(i + 10)))}}`,
    ],
    ['a name of 65 characters', `{"${'a'.repeat(65)}":1}`],
    ['an upper-case name', '{"Amount":1}'],
    ['the name __proto__', '{"__proto__":{"decimal":"1.0"},"a":1}'],
    ['no facts', '{}'],
    ['33 facts', many(33)],
    ['4,097 bytes', `{"a":${quoted(1_024)},"b":${quoted(1_013)},"c":"x"}`],
    ['an array', '["a"]'],
  ])('rejects %s', (_, text) => {
    expect(read(text)).toMatchObject({ success: false });
  });

  it('reports too many facts in one error, whatever their names and values', () => {
    const text = `{${Array.from({ length: 33 }, (_, i) => `"F${i}":{}`).join()}}`;
    expect(read(text).error?.issues).toMatchObject([{ message: 'expected 1 to 32 facts' }]);
  });

  it('reads every value that it accepts unchanged from its canonical form', () => {
    const decimal = fc
      .tuple(fc.bigInt(-(2n ** 63n) + 1n, 2n ** 63n - 1n), fc.integer({ min: 1, max: 4 }))
      .map(([units, places]) => {
        const digits = (units < 0n ? -units : units).toString().padStart(5, '0');
        const text = `${digits.slice(0, -4)}.${digits.slice(-4).slice(0, places)}`;
        return { decimal: units < 0n && /[1-9]/.test(text) ? `-${text}` : text };
      });
    const string = fc.string({ unit: 'grapheme', maxLength: 20 });
    const set = fc.uniqueArray(string, { maxLength: 4 }).map((items) => items.sort());
    const value = fc.oneof(string, fc.maxSafeInteger(), fc.boolean(), decimal, set);
    const name = fc.stringMatching(/^[a-z][a-z0-9_]{0,8}$/);
    fc.assert(
      fc.property(fc.dictionary(name, value, { minKeys: 1, maxKeys: 8 }), (facts) => {
        const bytes = canonicalBytes(facts);
        const again = factsSchema.parse(parseStrict(bytes));
        expect(canonicalBytes(again)).toEqual(bytes);
      }),
    );
  });
});

describe('agent envelope', () => {
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  const accepts = (body: unknown): boolean => agentEnvelopeSchema.safeParse(body).success;

  it('may have a tool call id and a traceparent in an admission and an outcome, and facts in an admission only', () => {
    const link = { tool_call_id: 'call_1', traceparent };
    const parent = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    expect(accepts(admissionEnvelope({ ...link, facts: { amount: 1 } }))).toBe(true);
    expect(accepts(outcomeEnvelope(parent, link))).toBe(true);
    expect(accepts(outcomeEnvelope(parent, { facts: { amount: 1 } }))).toBe(false);
  });

  it.each([
    ['of version 01', traceparent.replace(/^00/, '01')],
    ['with more parts', `${traceparent}-00`],
    ['in upper case', traceparent.toUpperCase()],
    ['with an empty trace id', traceparent.replace(/[0-9a-f]{32}/, '0'.repeat(32))],
    ['with an empty parent id', traceparent.replace(/[0-9a-f]{16}-01/, `${'0'.repeat(16)}-01`)],
  ])('rejects a traceparent %s', (_, wrong) => {
    expect(accepts(admissionEnvelope({ traceparent: wrong }))).toBe(false);
  });
});
