import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  aepBytes,
  buildAep,
  buildProofRecord,
  buildReceipt,
  requestTypeOf,
  proofRecordBytes,
  proofRecordHash,
  receiptBytes,
} from '#protocol/aep';
import { canonicalBytes } from '#protocol/canonical-json';
import { documentHash, hashHex, nobleSha256 } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { type Aep, aepSchema, proofRecordSchema } from '#protocol/schemas/aep';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { sha256 } from '../fixtures/leaves.js';
import { refusal } from '../fixtures/refusal.js';
import { admitted, denied } from '../fixtures/worked-log.js';

describe('AEP', () => {
  it('has RFC 8785 bytes for every content', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        expect(Buffer.from(aepBytes(aep)).equals(canonicalBytes(aep))).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('fits its schema, and survives a round trip through its bytes', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        const kept = !JSON.stringify(aep).includes('\\u0000');
        fc.pre(kept);
        expect(aepSchema.parse(parseStrict(aepBytes(aep)))).toEqual(aep);
      }),
    );
  });

  it('rejects text without a UTF-8 form instead of signing it', () => {
    const aep: Aep = {
      ...admitted.aep,
      subject: { kind: 'execute', intent_id: '\ud800', action: 'A' },
    };
    expect(refusal(() => aepBytes(aep)).code).toBe('lone_surrogate');
  });

  it('sorts its reasons and keeps each once', () => {
    const { decision } = buildAep({
      ...admitted.aep,
      valid_until: { proof: null, certificate: null, passport: null, trust: null },
      decision: { effect: 'DENY', reasons: ['b', 'a', 'é', 'b', 'B'] },
    });
    expect(decision.reasons).toEqual(['B', 'a', 'b', 'é']);
  });

  it('states only the end of the proof for a denial', () => {
    expect(Object.keys(admitted.aep.valid_until)).toEqual([
      'proof',
      'certificate',
      'passport',
      'trust',
    ]);
    expect(denied.aep.valid_until).toEqual({ proof: null });
    const mixed = { ...denied.aep, valid_until: admitted.aep.valid_until };
    expect(aepSchema.safeParse(mixed).success).toBe(false);
    expect(aepSchema.safeParse({ ...admitted.aep, valid_until: { proof: null } }).success).toBe(
      false,
    );
  });
});

describe('receipt', () => {
  const receipt = buildReceipt(nobleSha256, {
    proof_id: admitted.proofId,
    request_hash: admitted.aep.request_hash,
    effect: 'ADMIT',
    lane: 'execute',
  });

  it('has exactly seven fields, all made by the engine', () => {
    expect(executeReceiptSchema.parse(receipt)).toEqual(receipt);
    expect(Object.keys(receipt)).toEqual([
      'schema_version',
      'receipt_id',
      'status',
      'request_hash',
      'registry_proof_id',
      'response_hash',
      'vee_recorded',
    ]);
    expect(receipt.receipt_id).toBe(
      `svc-runtime-execute-${admitted.aep.request_hash.slice(0, 16)}`,
    );
    expect(receipt.status).toBe('ADMITTED');
    expect(receipt.vee_recorded).toBe(true);
    const refused = buildReceipt(nobleSha256, {
      ...receipt,
      proof_id: denied.proofId,
      effect: 'DENY',
      lane: 'execute',
    });
    expect(refused.status).toBe('DENIED');
  });

  it('hashes itself without its own hash', () => {
    const { response_hash, ...unhashed } = receipt;
    expect(response_hash).toBe(documentHash(nobleSha256, unhashed));
  });

  it('is sent in canonical form', () => {
    expect(receiptBytes(receipt)).toEqual(canonicalBytes(receipt));
  });
});

describe('proof record', () => {
  const { record } = admitted;

  it('binds the AEP, its envelope, the request and the response', () => {
    expect(proofRecordSchema.parse(record)).toEqual(record);
    expect(record.aep_hash).toBe(hashHex(nobleSha256, admitted.aepBytes));
    expect(record.request_hash).toBe(documentHash(nobleSha256, parseStrict(admitted.request)));
    const answer = {
      proof_id: admitted.proofId,
      request_hash: record.request_hash,
      effect: 'ADMIT' as const,
      lane: 'execute' as const,
    };
    expect(record.response_hash).toBe(buildReceipt(nobleSha256, answer).response_hash);
    expect(proofRecordBytes(record)).toEqual(canonicalBytes(record));
    expect(proofRecordHash(nobleSha256, record)).toBe(documentHash(nobleSha256, record));
  });

  it('has canonical bytes for every AEP', () => {
    fc.assert(
      fc.property(anyAep, fc.uint8Array({ minLength: 64, maxLength: 64 }), (aep, signature) => {
        const made = buildProofRecord(sha256, {
          proof_id: aep.proof_id,
          aep: aepBytes(aep),
          signature,
          key_id: aep.key_id,
          request_hash: aep.request_hash,
          effect: aep.decision.effect,
          lane: requestTypeOf(aep.subject),
        });
        expect(Buffer.from(proofRecordBytes(made)).equals(canonicalBytes(made))).toBe(true);
        expect(proofRecordSchema.safeParse(made).success).toBe(true);
      }),
    );
  });
});
