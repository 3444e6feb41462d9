import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalBytes } from '#protocol/json';
import { keyEntryBytes, parseEntry, proofEntryBytes, repeatedIn } from '#protocol/entries';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { refusal } from '../fixtures/refusal.js';
import { admitted, aepKey } from '../fixtures/worked-log.js';

const input = {
  proof_id: admitted.proofId,
  aep_hash: admitted.record.aep_hash,
  proof_record_hash: 'ab'.repeat(32),
  ...repeatedIn(admitted.aep),
};

describe('log entries', () => {
  it('have RFC 8785 bytes for proofs', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        const bytes = proofEntryBytes({
          proof_id: aep.proof_id,
          aep_hash: aep.request_commitment,
          proof_record_hash: aep.salt,
          ...repeatedIn(aep),
        });
        expect(canonicalBytes(parseEntry(bytes))).toEqual(bytes);
      }),
    );
  });

  it.each([
    { proof_id: admitted.proofId.toUpperCase() },
    { proof_id: `${admitted.proofId}"` },
    { aep_hash: 'AB'.repeat(32) },
    { proof_record_hash: 'ab' },
    { time: '2026-11-20T17:29:00Z' },
    { key_id: `${admitted.aep.key_id}"` },
    { effect: 'DENY' as const },
    { valid_until: { ...admitted.aep.valid_until, proof: '2026-02-30T00:00:00.000Z' } },
  ])('cannot be created for proofs from %j', (change) => {
    expect(refusal(() => proofEntryBytes({ ...input, ...change })).code).toBe('malformed_entry');
  });

  it('have from_index only when they record a key compromise', () => {
    const key = {
      key_id: aepKey.keyId,
      public_key: aepKey.keyId,
      time: '2026-11-20T17:29:00.123Z',
    };
    expect(parseEntry(keyEntryBytes({ ...key, change: 'retire' }))).not.toHaveProperty(
      'from_index',
    );
    expect(
      parseEntry(keyEntryBytes({ ...key, change: 'compromise', from_index: 0 })),
    ).toHaveProperty('from_index', 0);
    for (const wrong of [
      { ...key, change: 'compromise' as const },
      { ...key, change: 'activate' as const, from_index: 1 },
      { ...key, change: 'compromise' as const, from_index: -1 },
      { ...key, change: 'compromise' as const, from_index: 0.5 },
      { ...key, change: 'retire' as const, public_key: 'short' },
    ]) {
      expect(refusal(() => keyEntryBytes(wrong)).code).toBe('malformed_entry');
    }
  });
});
