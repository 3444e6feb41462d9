import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aepBytes, buildAep, buildProofRecord, proofRecordHash } from '#protocol/aep';
import { hashHex } from '#protocol/hash';
import { canonicalBytes } from '#protocol/json';
import { type Aep, proofRecordSchema } from '#protocol/schemas/aep';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { sha256 } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import { admitted } from '../fixtures/worked-log.js';

describe('AEP', () => {
  it('is not signed when a text has no UTF-8 form', () => {
    const aep: Aep = {
      ...admitted.aep,
      subject: { kind: 'execute', intent_id: '\ud800', action: 'A' },
    };
    expect(refusal(() => aepBytes(aep)).code).toBe('lone_surrogate');
  });

  it('has sorted reasons without duplicates', () => {
    const { decision } = buildAep({
      ...admitted.aep,
      valid_until: { proof: null, certificate: null, passport: null, trust: null },
      decision: { effect: 'DENY', reasons: ['b', 'a', 'é', 'b', 'B'] },
    });
    expect(decision.reasons).toEqual(['B', 'a', 'b', 'é']);
  });
});

it('proof record > has canonical JSON bytes for every AEP', () => {
  fc.assert(
    fc.property(anyAep, fc.uint8Array({ minLength: 64, maxLength: 64 }), (aep, signature) => {
      const made = buildProofRecord(sha256, {
        proof_id: aep.proof_id,
        aep: aepBytes(aep),
        signature,
        key_id: aep.key_id,
      });
      expect(proofRecordHash(sha256, made)).toBe(hashHex(sha256, canonicalBytes(made)));
      expect(proofRecordSchema.safeParse(made).success).toBe(true);
    }),
  );
});
