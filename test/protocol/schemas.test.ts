import { describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { parseStrict } from '#protocol/json';
import { executeRequestSchema, lookupRequestSchema, SCHEMA } from '#protocol/schemas/index';

const execute = {
  schema_version: 'svc.runtime.intent_execute.request/1.0',
  intent_id: 'i',
  tenant_id: 't',
  action: 'BOOK',
};

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
