import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalize } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import { plainAgentEnvelope, plainExecuteRequest } from '#protocol/plain-request';
import { agentEnvelopeSchema } from '#protocol/schemas/agent';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { admissionEnvelope, outcomeEnvelope } from '../fixtures/agent.js';
import { executeBody, without } from '../fixtures/engine.js';

const PARENT = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const HASH = 'a'.repeat(64);

const kinds = [
  {
    what: 'an execution',
    read: plainExecuteRequest,
    schema: executeRequestSchema,
    least: executeBody() as Record<string, JsonValue>,
    more: { idempotency_key: 'a "key"', proof_chain_fixture_ref: 'fixture-1' },
  },
  {
    what: 'an admission',
    read: plainAgentEnvelope,
    schema: agentEnvelopeSchema,
    least: admissionEnvelope() as Record<string, JsonValue>,
    more: { parent_proof_id: PARENT, arguments_hash: HASH, tool: 'a/tool', idempotency_key: 'k' },
  },
  {
    what: 'an outcome',
    read: plainAgentEnvelope,
    schema: agentEnvelopeSchema,
    least: outcomeEnvelope(PARENT) as Record<string, JsonValue>,
    more: { result_hash: HASH },
  },
];

/** Replacement values for a field, valid and invalid. */
const values = fc.oneof(
  fc.constantFrom<JsonValue>(
    ...[null, true, 7, '', 'x', 'é"\\', '😀', '\ud800', 'A'.repeat(128), 'A'.repeat(129), HASH],
    ...[PARENT, 'a'.repeat(512), 'a'.repeat(513), '😀'.repeat(257), '😀'.repeat(513), 'a\nb'],
    ...['2026-02-30T00:00:00.000Z', '2026-02-28T23:59:59.999Z', '2026-02-28T24:00:00.000Z'],
    ...['admission', 'outcome', 'succeeded', 'svc.agent.admission.envelope/1.0', 'n'.repeat(16)],
    [],
    {},
    { id: 'a' },
    { id: 'a', framework: 'é' },
    { id: 'a', framework: '' },
    { id: 'a', more: 1 },
    { framework: 'f' },
  ),
  fc.string({ unit: 'binary', maxLength: 20 }),
);

describe.each(kinds)('fast path for $what', ({ read, schema, least, more }) => {
  const whole: Record<string, JsonValue> = { ...least, ...more };

  it('parses members in any order', () => {
    for (const body of [least, whole, Object.fromEntries(Object.entries(whole).reverse())]) {
      expect(read(body)).toEqual({ body: schema.parse(body), canonical: canonicalize(body) });
    }
  });

  it('returns only what the schema accepts, with an equal result', () => {
    const names = fc.constantFrom(...Object.keys(whole), '__proto__', 'constructor', 'more');
    fc.assert(
      fc.property(fc.dictionary(names, fc.option(values), { maxKeys: 2 }), (changes) => {
        const body = { ...whole } as Record<string, JsonValue>;
        for (const [name, value] of Object.entries(changes)) {
          if (value === null) delete body[name];
          else
            Object.defineProperty(body, name, {
              value,
              enumerable: true,
              configurable: true,
              writable: true,
            });
        }
        const found = read(body);
        if (found === null) return;
        const parsed = schema.safeParse(body);
        expect(parsed.success).toBe(true);
        expect(found).toEqual({ body: parsed.data, canonical: canonicalize(body) });
      }),
      { numRuns: 5_000 },
    );
  });

  it.each(Object.keys(whole))(
    'returns null without required %s, or with an extra member',
    (name) => {
      const rest = without(whole, name);
      expect(read(rest) === null).toBe(!schema.safeParse(rest).success);
      expect(read({ ...whole, [`${name}_`]: 'x' })).toBeNull();
    },
  );

  it.each([null, 'text', [], [least]])('returns null for %j', (value) => {
    expect(read(value as JsonValue)).toBeNull();
  });
});
