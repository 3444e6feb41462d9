import { describe, expect, it } from 'vitest';
import { toBase64, utf8 } from '#protocol/bytes';
import { parseStrict } from '#protocol/json';
import {
  admissionStatusSchema,
  requestedIdentifier,
  executeRequestSchema,
  facadeSchema,
  inclusionResponseSchema,
  lookupRequestSchema,
  LOOKUP_FIELDS,
  notFoundSchema,
  problemSchema,
  SCHEMA,
} from '#protocol/schemas/index';
import { NO_TRUST_CHAIN, STATUSES, TRUST_CHAIN } from '#protocol/status';
import { admitted, exportOf, leaves, root } from '../fixtures/worked-log.js';

const execute = {
  schema_version: 'svc.runtime.intent_execute.request/1.0',
  intent_id: 'i',
  tenant_id: 't',
  action: 'BOOK',
};

describe('execute request', () => {
  it.each([
    {},
    { idempotency_key: ' ~' },
    { idempotency_key: 'k'.repeat(255) },
    { proof_chain_fixture_ref: 'fixture-1' },
    { action: 'A'.repeat(128) },
    { action: 'A-Z_0.9:' },
    { intent_id: '✈'.repeat(512) },
  ])('accepts %j', (change) => {
    const body = { ...execute, ...change };
    expect(executeRequestSchema.parse(body)).toEqual(body);
  });

  it.each([
    { schema_version: 'svc.runtime.intent_execute.request/1.1' },
    { extra: 1 },
    { action: 'book' },
    { action: '' },
    { action: 'A'.repeat(129) },
    { action: 'A B' },
    { tenant_id: '' },
    { tenant_id: '-t' },
    { intent_id: '' },
    { intent_id: 7 },
    { idempotency_key: '' },
    { idempotency_key: 'k'.repeat(256) },
    { idempotency_key: 'é' },
    { idempotency_key: 'a\n' },
    { idempotency_key: null },
    { idempotency_key: undefined },
    { proof_chain_fixture_ref: '' },
  ])('rejects %j', (change) => {
    expect(executeRequestSchema.safeParse({ ...execute, ...change }).success).toBe(false);
  });

  it.each(['schema_version', 'intent_id', 'tenant_id', 'action'] as const)(
    'requires %s',
    (name) => {
      const rest: Partial<typeof execute> = { ...execute };
      delete rest[name];
      expect(executeRequestSchema.safeParse(rest).success).toBe(false);
    },
  );

  it('rejects __proto__ as an unknown field', () => {
    const body = parseStrict(utf8(JSON.stringify(execute).replace('{', '{"__proto__":{},')));
    expect(executeRequestSchema.safeParse(body).success).toBe(false);
  });
});

describe('lookup request', () => {
  const schema_version = SCHEMA.lookupRequest;

  it.each(LOOKUP_FIELDS)('accepts %s as its identifier', (field) => {
    const body = lookupRequestSchema.parse({ schema_version, [field]: 'x' });
    expect(requestedIdentifier(body)).toEqual({ field, identifier: 'x' });
  });

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

describe('public responses', () => {
  const resolved = {
    schema_version: SCHEMA.facade,
    artifact_kind: 'proof',
    identifier: admitted.proofId,
    artifact: {
      execution_id: admitted.aep.execution_id,
      aep_hash: admitted.record.aep_hash,
      proof_record_hash: admitted.record.aep_hash,
      artifact_level: 'PROOF_BACKED_PUBLIC_PROJECTION',
      effect: 'ADMIT',
      environment: 'sandbox',
    },
    verification: {
      verification_status: 'VALID',
      can_assert_validity: true,
      frontend_recomputed: false,
      verified_at: admitted.aep.accepted_at,
    },
    trust_chain: TRUST_CHAIN.FULL,
    mutation_allowed: false,
    serves_authoritative_truth: false,
    lookup: { requested: admitted.proofId, matched_on: 'proof_id' },
    references: {
      proof_id: admitted.proofId,
      registry_proof_id: admitted.proofId,
      registry_entry_id: `reg_${admitted.proofId}`,
      execution_id: admitted.aep.execution_id,
    },
    downloads: { checkpoint: '/log/checkpoint', tiles: ['/log/tile/0/000.p/5'] },
    integrity: {
      aep_hash: admitted.record.aep_hash,
      proof_record_hash: admitted.record.aep_hash,
      log_origin: 'log.example/svc',
      leaf_index: 1,
      key_id: admitted.aep.key_id,
      accepted_at: admitted.aep.accepted_at,
    },
  };

  it('have the documented fields, resolved or unresolved', () => {
    expect(facadeSchema.safeParse(resolved).error).toBeUndefined();
    const unresolved = {
      ...resolved,
      artifact: {},
      verification: {
        verification_status: 'BACKEND_LOOKUP_REQUIRED',
        can_assert_validity: false,
        frontend_recomputed: false,
      },
      trust_chain: NO_TRUST_CHAIN,
      lookup: { requested: 'x', matched_on: null },
      references: {},
      downloads: {},
      integrity: {},
    };
    expect(facadeSchema.safeParse(unresolved).error).toBeUndefined();
  });

  it('cannot assert a validity that their status does not imply', () => {
    for (const verification_status of STATUSES) {
      for (const can_assert_validity of [true, false]) {
        const verification = { ...resolved.verification, verification_status, can_assert_validity };
        const positive = ['PASS', 'VALID', 'VERIFIED', 'TRUST_ESTABLISHED'].includes(
          verification_status,
        );
        expect(facadeSchema.safeParse({ ...resolved, verification }).success).toBe(
          can_assert_validity === positive,
        );
      }
    }
  });

  it.each([{ mutation_allowed: true }, { serves_authoritative_truth: true }, { tenant_id: 't' }])(
    'reject the status %j',
    (change) => {
      expect(facadeSchema.safeParse({ ...resolved, ...change }).success).toBe(false);
    },
  );

  it('have the specified record for an unknown proof', () => {
    const notFound = {
      schema_version: 'svc.public_verification.not_found/1.0',
      result: 'NOT_FOUND',
      verification_status: 'NOT_FOUND',
      can_assert_validity: false,
      honest_states: ['VERIFIED', 'NOT_FOUND', 'REVOKED', 'EXPIRED'],
      verdict_fabricated: false,
    };
    expect(notFoundSchema.parse(notFound)).toEqual(notFound);
    expect(notFoundSchema.safeParse({ ...notFound, can_assert_validity: true }).success).toBe(
      false,
    );
  });
});

describe('engine responses', () => {
  it('contain only the state while pending', () => {
    const pending = {
      schema_version: SCHEMA.admissionStatus,
      proof_id: admitted.proofId,
      state: 'pending',
    };
    expect(admissionStatusSchema.parse(pending)).toEqual(pending);
    expect(admissionStatusSchema.safeParse({ ...pending, state: 'admitted' }).success).toBe(false);
  });

  it('contain a path and a checkpoint for inclusion, or a pending state', () => {
    const { entry, inclusion, proof_id } = exportOf(admitted);
    const included = {
      schema_version: SCHEMA.inclusion,
      proof_id,
      leaf_index: 1,
      leaf_hash: toBase64(leaves[1]!),
      entry,
      state: 'included',
      root: toBase64(root),
      inclusion,
    };
    expect(inclusionResponseSchema.parse(included)).toEqual(included);
    const waiting = { ...included, state: 'pending_checkpoint', root: null, inclusion: null };
    expect(inclusionResponseSchema.parse(waiting)).toEqual(waiting);
    for (const mixed of [
      { ...included, root: null },
      { ...waiting, inclusion },
      { ...included, inclusion: { ...inclusion, path: ['AAAA'] } },
      { ...included, inclusion: { ...inclusion, leaf_index: -1 } },
    ]) {
      expect(inclusionResponseSchema.safeParse(mixed).success).toBe(false);
    }
  });

  it('contain a code, a request id and pointers for errors', () => {
    const problem = {
      type: 'urn:svc:problem:duplicate_key',
      title: 't',
      status: 400,
      detail: 'd',
      code: 'duplicate_key',
      request_id: 'r',
      errors: [{ pointer: '/a', detail: 'd' }],
    };
    expect(problemSchema.parse(problem)).toEqual(problem);
    expect(problemSchema.safeParse({ ...problem, status: 200 }).success).toBe(false);
  });
});

it('every schema_version has the form svc.<area>.<name>/<major.minor>, all at 1.0', () => {
  for (const id of Object.values(SCHEMA)) expect(id).toMatch(/^svc(\.[a-z_]+)+\/1\.0$/);
  expect(new Set(Object.values(SCHEMA)).size).toBe(Object.keys(SCHEMA).length);
});
