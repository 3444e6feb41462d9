import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { canonicalBytes, isCanonical } from '#protocol/canonical-json';
import { keyEntryBytes, parseEntry, proofEntryBytes, statusEntryBytes } from '#protocol/entries';
import type { JsonValue } from '#protocol/json';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { refusal } from '../fixtures/refusal.js';
import { admitted, aepKey, entries } from '../fixtures/worked-log.js';

const input = {
  proof_id: admitted.proofId,
  aep_hash: admitted.record.aep_hash,
  proof_record_hash: 'ab'.repeat(32),
  time: '2026-11-20T17:29:00.123Z',
};

describe('log entries', () => {
  it('are canonical and survive a round trip', () => {
    for (const bytes of entries) {
      expect(isCanonical(bytes)).toBe(true);
      expect(canonicalBytes(parseEntry(bytes))).toEqual(bytes);
    }
  });

  it('have RFC 8785 bytes for proofs', () => {
    fc.assert(
      fc.property(anyAep, (aep) => {
        const bytes = proofEntryBytes({
          proof_id: aep.proof_id,
          aep_hash: aep.request_hash,
          proof_record_hash: aep.salt,
          time: aep.accepted_at,
        });
        expect(canonicalBytes(parseEntry(bytes))).toEqual(bytes);
      }),
    );
  });

  it('contain commitments only', () => {
    expect(fromUtf8(proofEntryBytes(input))).toBe(
      `{"aep_hash":"${input.aep_hash}","proof_id":"${input.proof_id}","proof_record_hash":"${input.proof_record_hash}","schema_version":"svc.registry.entry/1.0","time":"2026-11-20T17:29:00.123Z","type":"proof"}`,
    );
  });

  it.each([
    { proof_id: admitted.proofId.toUpperCase() },
    { proof_id: `${admitted.proofId}"` },
    { aep_hash: 'AB'.repeat(32) },
    { proof_record_hash: 'ab' },
    { time: '2026-11-20T17:29:00Z' },
  ])('are not made for proofs from %j', (change) => {
    expect(refusal(() => proofEntryBytes({ ...input, ...change })).code).toBe('malformed_entry');
  });

  it('have from_index for a key compromise only', () => {
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

  it('revoke known artifacts only', () => {
    const status = { proof_id: admitted.proofId, reason_hash: input.aep_hash, time: input.time };
    expect(parseEntry(statusEntryBytes({ ...status, artifact_kind: 'passport' }))).toMatchObject({
      type: 'status',
      status: 'REVOKED',
    });
    expect(
      refusal(() => statusEntryBytes({ ...status, artifact_kind: 'package' as 'trust' })).code,
    ).toBe('malformed_entry');
  });

  const proofEntry = parseEntry(admitted.entry) as unknown as Record<string, JsonValue>;
  it.each([
    ['a further field', { ...proofEntry, note: 'x' }],
    ['another type', { ...proofEntry, type: 'other' }],
    ['an impossible time', { ...proofEntry, time: '2026-02-30T00:00:00.000Z' }],
    ['a list around it', [proofEntry]],
  ])('are rejected with %s', (_, document) => {
    const bytes = canonicalBytes(JSON.parse(JSON.stringify(document)) as JsonValue);
    expect(refusal(() => parseEntry(bytes)).code).toBe('malformed_entry');
  });

  it('are rejected in any non-canonical form', () => {
    for (const bytes of entries) {
      const text = fromUtf8(bytes);
      const reversed = Object.entries(JSON.parse(text) as object).reverse();
      for (const spelling of [
        ` ${text}`,
        `${text}\n`,
        text.replace(',', ', '),
        JSON.stringify(Object.fromEntries(reversed)),
        text.replace('registry', 'regi\\u0073try'),
        text.replace('{', '{"type":"proof",'),
      ]) {
        expect(refusal(() => parseEntry(utf8(spelling))).code).toBe('malformed_entry');
      }
    }
  });
});
