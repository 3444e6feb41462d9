import { describe, expect, it } from 'vitest';
import { canonicalBytes } from '#protocol/json';
import {
  entryBytes,
  listedFailures,
  parseEntry,
  proofEntryBytes,
  repeatedIn,
} from '#protocol/entries';
import { utf8 } from '#protocol/bytes';
import { LISTED_LEAVES, type VerdictEntry } from '#protocol/schemas/log-entry';
import { KeyStates, isSignedVerdict, verdictMessage } from '#protocol/state/log-keys';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { anyAep } from '../fixtures/aep-arbitrary.js';
import { refusal } from '../fixtures/refusal.js';
import { admitted, aepKey } from '../fixtures/worked-log.js';
import { fullLog } from '../fixtures/full-log.js';
import fc from 'fast-check';

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
  ])('cannot be created for a proof with %j', (change) => {
    expect(refusal(() => proofEntryBytes({ ...input, ...change })).code).toBe('malformed_entry');
  });

  it('have from_index only for a compromise, and a delegation only for the activation of an AEP key', () => {
    const key = {
      type: 'key' as const,
      use: 'aep' as const,
      key_id: aepKey.keyId,
      public_key: aepKey.keyId,
      time: '2026-11-20T17:29:00.123Z',
    };
    expect(parseEntry(entryBytes({ ...key, change: 'retire' }))).not.toHaveProperty('from_index');
    expect(parseEntry(entryBytes({ ...key, change: 'compromise', from_index: 0 }))).toHaveProperty(
      'from_index',
      0,
    );
    const sig = `${'A'.repeat(86)}==`;
    const delegation = { root_key_id: aepKey.keyId, until_index: 9, max_proofs: 9, sig };
    const delegated = { ...key, change: 'activate' as const, delegation };
    expect(parseEntry(entryBytes(delegated))).toHaveProperty('delegation', delegation);
    for (const wrong of [
      { ...delegated, change: 'retire' as const },
      { ...delegated, use: 'aep_root' as const },
      { ...key, change: 'compromise' as const },
      { ...key, change: 'activate' as const, from_index: 1 },
      { ...key, change: 'compromise' as const, from_index: -1 },
      { ...key, change: 'compromise' as const, from_index: 0.5 },
      { ...key, change: 'retire' as const, public_key: 'short' },
    ]) {
      expect(refusal(() => entryBytes(wrong)).code).toBe('malformed_entry');
    }
  });
});

const log = fullLog.entries.map(({ canonical }, leafIndex) => ({
  leafIndex,
  entry: parseEntry(utf8(canonical)),
}));
const ORIGIN = 'log.example/svc';
const crypto = { sha256: nativeSha256, verify: nativeVerify };
const verdicts = log.flatMap(({ leafIndex, entry }) =>
  entry.type === 'verdict' ? [{ leafIndex, entry }] : [],
);
const isSigned = (entry: VerdictEntry, keys = log, at = 13): boolean =>
  isSignedVerdict(crypto, ORIGIN, entry, new KeyStates({ ...crypto, origins: [ORIGIN] }, keys), at);

it('isSignedVerdict > accepts the vectors, and only under a verifier key that is active', () => {
  const [first, second] = verdicts.map(({ entry }) => entry);
  expect(isSigned(first!) && isSigned(second!, log, 16)).toBe(true);
  expect(isSigned({ ...first!, failed: [] })).toBe(false);
  const keyed = log.findIndex(({ entry }) => 'use' in entry && entry.use === 'verifier');
  expect(isSigned(first!, log, keyed)).toBe(false);
  const activation = log[keyed]!;
  const otherUse = { ...activation, entry: { ...activation.entry, use: 'aep' as const } } as never;
  expect(isSigned(first!, [otherUse, activation])).toBe(false);
  const retirement = { ...activation.entry, change: 'retire' } as never;
  expect(isSigned(first!, [...log, { leafIndex: 12, entry: retirement }])).toBe(false);
  expect(isSigned(first!, [...log, { leafIndex: 13, entry: retirement }])).toBe(true);
});

it('listedFailures > are the failed leaves that were not restored', () => {
  const all = verdicts.map(({ entry }) => entry);
  expect([...listedFailures(all.slice(0, 1))]).toEqual([11]);
  expect([...listedFailures(all)]).toEqual([]);
});

it('verdictMessage > has a length that AWS KMS signs, for the longest list and large indexes', () => {
  const entry = verdicts[0]!.entry;
  const failed = Array.from({ length: LISTED_LEAVES }, (_, i) => 10 ** 13 + i);
  const message = verdictMessage(`${'x'.repeat(200)}/log`, { ...entry, failed });
  expect(message.length).toBeLessThanOrEqual(4096);
});
